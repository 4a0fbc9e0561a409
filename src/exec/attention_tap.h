// AttentionTap: the attention weights of executed steps, which no kernel keeps: softmax
// probabilities of every query over the keys that it sees, worked out from the step's own queries
// and the cache by the reference formula (scale, window, ALiBi, sinks, soft cap; the expanded and
// the absorbed form of latent attention).
//
// Entry points: AttentionWeightsOf for one op, AttentionTap for whole steps. Neighbours: observer.h
// (who calls), kernels/reference (the formula).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/observer.h"

namespace lucid {

// What one token attends to in one op.
struct AttentionQuery {
  int32_t sequence = 0;  // of the step
  int64_t position = 0;
  Phase phase = Phase::kPrompt;
  // The first key that it sees, and how many: places of the sequence's cache, which are positions
  // where nothing was evicted.
  int64_t first_key = 0;
  int64_t n_keys = 0;
  std::vector<float> weights;  // [n_heads, n_keys]
  std::vector<float> sinks;    // [n_heads]: the part that a head's sink takes; empty without sinks

  float Weight(int64_t head, int64_t key) const {
    return weights[static_cast<size_t>(head * n_keys + key)];
  }
};

struct AttentionMap {
  std::string op;     // "blk.3.attn"
  int32_t layer = 0;  // index among the plan's KV layers
  int64_t n_heads = 0;
  std::vector<AttentionQuery> queries;  // of the tokens that the op computes, as the step has them
};

// Of an op that has just run; nothing where it is no attention. Of a model with latent attention
// one op has the given tokens (kMlaAttention), another the generated ones.
std::optional<AttentionMap> AttentionWeightsOf(const ObservedOp& observed);

// Keeps them all, or those of one layer.
class AttentionTap final : public Observer {
 public:
  explicit AttentionTap(int32_t layer = -1) : layer_(layer) {}

  void AfterOp(const ObservedOp& observed) override;
  // In the order in which they ran; ops that had no token are left out.
  const std::vector<AttentionMap>& maps() const { return maps_; }
  void Clear() { maps_.clear(); }

 private:
  int32_t layer_;
  std::vector<AttentionMap> maps_;
};

}  // namespace lucid
