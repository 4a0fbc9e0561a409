// Plan: a model as a flat list of ops over symbolic sizes. Made by Builder, changed by passes, read
// by everybody else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/op.h"

namespace lucid {

// The batch arrays every plan may read, in this order as its first values.
enum class BatchInput : int8_t { kTokens, kPositions, kSequence, kBlockTables, kOutputRows };
inline constexpr int kBatchInputCount = 5;

struct Plan {
  std::string arch;
  std::vector<ValueInfo> values;
  std::vector<Op> ops;
  std::vector<KvSpec> kv_layers;
  Value logits;  // [R, vocab]

  const ValueInfo& Info(Value v) const { return values[static_cast<size_t>(v.id)]; }
  static Value Batch(BatchInput input) { return Value{static_cast<int32_t>(input)}; }

  // Every weight the plan reads, in order of first use.
  std::vector<Value> Weights() const;
};

// The layer of "blk.12.attn_q", as plans name what is in one; -1 of other names.
int32_t LayerOfName(std::string_view name);

}  // namespace lucid
