#include "exec/batch.h"

#include <algorithm>

#include "base/check.h"

namespace lucid {

void Batch::Clear() {
  tokens_.clear();
  positions_.clear();
  sequence_.clear();
  output_rows_.clear();
  blocks_.clear();
}

void Batch::AddSequence(std::span<const int32_t> blocks) {
  blocks_.emplace_back(blocks.begin(), blocks.end());
}

void Batch::AddToken(int32_t token, int64_t position, bool wants_output) {
  LUCID_CHECK(!blocks_.empty(), "a token before any sequence");
  if (wants_output) output_rows_.push_back(n_tokens());
  tokens_.push_back(token);
  positions_.push_back(static_cast<int32_t>(position));
  sequence_.push_back(static_cast<int32_t>(blocks_.size() - 1));
}

StepView Batch::View() {
  size_t stride = 0;
  for (const auto& blocks : blocks_) stride = std::max(stride, blocks.size());
  block_tables_.assign(stride * blocks_.size(), 0);
  for (size_t s = 0; s < blocks_.size(); ++s) {
    std::copy(blocks_[s].begin(), blocks_[s].end(),
              block_tables_.begin() + static_cast<ptrdiff_t>(s * stride));
  }
  StepView view;
  view.n_tokens = n_tokens();
  view.n_sequences = static_cast<int32_t>(blocks_.size());
  view.n_outputs = n_outputs();
  view.tokens = tokens_.data();
  view.positions = positions_.data();
  view.sequence = sequence_.data();
  view.block_tables = block_tables_.data();
  view.block_table_stride = static_cast<int32_t>(stride);
  view.output_rows = output_rows_.data();
  return view;
}

}  // namespace lucid
