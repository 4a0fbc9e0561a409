// What a chunk adds to the load of a step: one formula for predicting and for learning.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sched/cost_model.h"
#include "sched/sequence.h"

namespace lucid {

inline void AddDecode(const Sequence& sequence, int64_t first, StepLoad& load) {
  load.decode_tokens += 1;
  load.decode_keys += std::min(first + 1, sequence.most_places());
}

// Tokens [first, first + count): row i sees i + 1 keys, or what eviction leaves of them.
inline void AddPrefill(const Sequence& sequence, int64_t first, int64_t count, StepLoad& load) {
  load.prefill_tokens += count;
  const int64_t places = sequence.most_places();
  const int64_t rising = std::clamp<int64_t>(places - first, 0, count);
  load.prefill_pairs += rising * first + rising * (rising + 1) / 2 + (count - rising) * places;
}

}  // namespace lucid
