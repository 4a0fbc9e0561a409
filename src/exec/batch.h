// Batch: the packed input of one step, for any mix of prefill chunks and decoding sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/args.h"

namespace lucid {

class Batch {
 public:
  void Clear();

  // Starts a sequence whose cache blocks are `blocks`; the tokens that follow belong to it.
  void AddSequence(std::span<const int32_t> blocks);
  // One token at `position` of the current sequence; `wants_output` asks for its logits.
  void AddToken(int32_t token, int64_t position, bool wants_output);

  int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t n_outputs() const { return static_cast<int32_t>(output_rows_.size()); }

  // The view that kernels read; valid until the batch changes.
  StepView View();

 private:
  std::vector<int32_t> tokens_, positions_, sequence_, output_rows_;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<int32_t> block_tables_;  // [n_sequences][stride], made by View
};

}  // namespace lucid
