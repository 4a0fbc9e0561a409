// Batch: the packed input of one step, for any mix of prefill chunks and decoding sequences.
//
// Kept and cleared from step to step, it allocates nothing once it has seen its largest step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/args.h"
#include "plan/op_table.h"

namespace lucid {

class Batch {
 public:
  // Every sequence brings a block table for each of `n_groups` groups of layers (KvLayout::groups).
  explicit Batch(int32_t n_groups = 1);

  void Clear();

  // Starts a sequence; the tokens that follow belong to it. `tables`: its physical blocks by group;
  // `dropped`: the places that eviction has freed, by group, or empty for none; `scores`: where the
  // attention of its keys is added up, if anywhere. Tables are copied.
  void AddSequence(std::span<const std::span<const int32_t>> tables,
                   std::span<const int32_t> dropped, const KeyScores& scores = {});
  // The same where there is one group.
  void AddSequence(std::span<const int32_t> blocks);
  // One token at `position` of the current sequence; `wants_output` asks for its logits.
  // `rope_length`: of the sequence, where rotations depend on it (StepView::rope_lengths); 0: up to
  // this token.
  void AddToken(int32_t token, int64_t position, Phase phase, bool wants_output,
                int64_t rope_length = 0);

  int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t n_sequences() const { return static_cast<int32_t>(scores_.size()); }
  int32_t n_outputs() const { return static_cast<int32_t>(output_rows_.size()); }
  int32_t n_groups() const { return n_groups_; }

  // Adds no attention up any more: for running a step a second time.
  void ForgetScores() { any_scores_ = false; }

  // The view that kernels read; valid until the batch changes.
  StepView View();

 private:
  int32_t n_groups_;
  std::vector<int32_t> tokens_, positions_, rope_lengths_, sequence_, output_rows_;
  std::vector<Phase> phases_;
  // As they were added: sequence by sequence, its groups in order.
  std::vector<int32_t> table_entries_, table_sizes_, added_dropped_;
  std::vector<KeyScores> scores_;  // [n_sequences]
  bool any_dropped_ = false, any_scores_ = false;
  // As kernels read them, made by View.
  std::vector<int32_t> block_tables_;  // [n_groups][n_sequences][stride]
  std::vector<int32_t> dropped_;       // [n_groups][n_sequences]
};

// The step as a workload, for the op table's cost functions: `types` with its sequences.
Workload WorkloadOf(const StepView& step, const Workload& types);

}  // namespace lucid
