// Kivi2's quantised blocks, written by the KvStore of every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args.h"

namespace lucid {

// Bytes of scratch that PackKiviBlocks needs.
size_t KiviScratch(const KvView& kv);

// Quantises what of one head the step's tokens [begin, end), all of one sequence, make old enough:
// the blocks that the last of them reads packed and the token before the first one did not. The
// float16 rows are read back from kv.recent, so that the bits do not depend on how many tokens a
// step brings.
void PackKiviBlocks(const KvView& kv, const StepView& step, int64_t begin, int64_t end,
                    int64_t head, std::byte* scratch);

}  // namespace lucid
