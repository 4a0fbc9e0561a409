#include "exec/batch.h"

#include <algorithm>

#include "base/check.h"

namespace lucid {

Batch::Batch(int32_t n_groups) : n_groups_(n_groups) {
  LUCID_CHECK(n_groups > 0, "a batch of {} groups", n_groups);
}

void Batch::Clear() {
  tokens_.clear();
  positions_.clear();
  rope_lengths_.clear();
  sequence_.clear();
  output_rows_.clear();
  phases_.clear();
  table_entries_.clear();
  table_sizes_.clear();
  added_dropped_.clear();
  scores_.clear();
  any_dropped_ = false;
  any_scores_ = false;
}

void Batch::AddSequence(std::span<const std::span<const int32_t>> tables,
                        std::span<const int32_t> dropped, const KeyScores& scores) {
  const auto groups = static_cast<size_t>(n_groups_);
  LUCID_CHECK(tables.size() == groups && (dropped.empty() || dropped.size() == groups),
              "{} tables and {} counts of dropped places for {} groups", tables.size(),
              dropped.size(), n_groups_);
  for (size_t g = 0; g < groups; ++g) {
    table_entries_.insert(table_entries_.end(), tables[g].begin(), tables[g].end());
    table_sizes_.push_back(static_cast<int32_t>(tables[g].size()));
    added_dropped_.push_back(dropped.empty() ? 0 : dropped[g]);
    any_dropped_ = any_dropped_ || added_dropped_.back() != 0;
  }
  scores_.push_back(scores);
  any_scores_ = any_scores_ || scores.sums != nullptr;
}

void Batch::AddSequence(std::span<const int32_t> blocks) {
  AddSequence(std::span(&blocks, 1), {});
}

void Batch::AddToken(int32_t token, int64_t position, Phase phase, bool wants_output,
                     int64_t rope_length) {
  LUCID_CHECK(n_sequences() > 0, "a token before any sequence");
  if (wants_output) output_rows_.push_back(n_tokens());
  tokens_.push_back(token);
  positions_.push_back(static_cast<int32_t>(position));
  rope_lengths_.push_back(static_cast<int32_t>(rope_length > 0 ? rope_length : position + 1));
  sequence_.push_back(n_sequences() - 1);
  phases_.push_back(phase);
}

StepView Batch::View() {
  const auto groups = static_cast<size_t>(n_groups_);
  const size_t sequences = scores_.size();
  const size_t stride = static_cast<size_t>(
      table_sizes_.empty() ? 0 : *std::max_element(table_sizes_.begin(), table_sizes_.end()));
  // -1: a kernel that reads behind a table must not find another sequence's block.
  block_tables_.assign(groups * sequences * stride, -1);
  dropped_.resize(groups * sequences);
  const int32_t* entries = table_entries_.data();
  for (size_t s = 0; s < sequences; ++s) {
    for (size_t g = 0; g < groups; ++g) {
      const int32_t size = table_sizes_[s * groups + g];
      std::copy_n(entries, size, block_tables_.data() + (g * sequences + s) * stride);
      dropped_[g * sequences + s] = added_dropped_[s * groups + g];
      entries += size;
    }
  }
  StepView view;
  view.n_tokens = n_tokens();
  view.n_sequences = n_sequences();
  view.n_outputs = n_outputs();
  view.tokens = tokens_.data();
  view.positions = positions_.data();
  view.sequence = sequence_.data();
  view.phases = phases_.data();
  view.rope_lengths = rope_lengths_.data();
  view.block_tables = block_tables_.data();
  view.block_table_stride = static_cast<int32_t>(stride);
  view.dropped = any_dropped_ ? dropped_.data() : nullptr;
  view.scores = any_scores_ ? scores_.data() : nullptr;
  view.output_rows = output_rows_.data();
  return view;
}

Workload WorkloadOf(const StepView& step, const Workload& types) {
  Workload work = types;
  work.sequences.assign(static_cast<size_t>(step.n_sequences), {});
  for (int32_t t = 0; t < step.n_tokens; ++t) {
    SequenceSpan& span = work.sequences[static_cast<size_t>(step.sequence[t])];
    if (span.count++ == 0) span.start = step.positions[t];
  }
  work.outputs = step.n_outputs;
  return work;
}

}  // namespace lucid
