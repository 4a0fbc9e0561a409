#include "models/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "models/parts.h"

namespace lucid {

int32_t ToInt32(int64_t n) {
  return static_cast<int32_t>(std::clamp<int64_t>(n, INT32_MIN, INT32_MAX));
}

void ReadGgufExperts(GgufHparams& h, const RoutingRule& rule, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  moe.n_experts = h.Int("expert_count");
  moe.expert_dim = h.IntOr("expert_feed_forward_length", c.ffn_dim);
  moe.rule = rule;
  moe.rule.n_used = ToInt32(h.Int("expert_used_count"));
  moe.glu.act = c.act;
  const int64_t dense = h.IntOr("leading_dense_block_count", 0);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].experts = static_cast<int64_t>(i) >= dense;
  }
}

}  // namespace lucid

namespace lucid::parts {
namespace {

// The expert of all tokens.
Value SharedExpert(Builder& b, const ModelConfig& c, const LayerScope& w, Value h) {
  const Extent ffn{c.moe.shared_dim, Axis::kFfn};
  const Value gate = b.Linear(h, w.Mat("ffn_gate_shexp", ffn, c.dim));
  const Value up = b.Linear(h, w.Mat("ffn_up_shexp", ffn, c.dim));
  const Value y = b.Linear(b.Glu(gate, up, c.act), w.Mat("ffn_down_shexp", c.dim, ffn));
  if (!c.moe.shared_gate) return y;
  const Value open = b.Linear(h, w.Mat("ffn_gate_inp_shexp", 1, c.dim));
  return b.Glu(open, y, Activation::kSigmoid);
}

}  // namespace

Value MoeFfn(Builder& b, const ModelConfig& c, int layer, Value h) {
  const LayerScope w = b.Layer(layer);
  const MoeConfig& moe = c.moe;
  const Extent experts{moe.n_experts, Axis::kExpert};
  const auto stack = [&](const std::string& name, int64_t n_out, int64_t n_in) {
    return ExpertWeights{w.Stack(name, experts, n_out, n_in),
                         moe.expert_bias ? w.Mat(name + ".bias", experts, n_out) : Value{}};
  };
  const Value logits = b.ExactLinear(h, w.Mat("ffn_gate_inp", experts, c.dim),
                                     OptionalBias(w, moe.router_bias, "ffn_gate_inp", experts));
  const Value bias = moe.choice_bias ? w.Vec("exp_probs_b.bias", experts) : Value{};
  const Routes routes = b.Route(logits, bias, moe.rule);
  const Value inner = b.ExpertGlu(h, routes.experts, stack("ffn_gate_exps", moe.expert_dim, c.dim),
                                  stack("ffn_up_exps", moe.expert_dim, c.dim), moe.glu);
  const Value outer =
      b.ExpertLinear(inner, routes.experts, stack("ffn_down_exps", c.dim, moe.expert_dim));
  const Value y = b.MixExperts(outer, routes.weights);
  return b.Named(moe.shared_dim > 0 ? b.Add(y, SharedExpert(b, c, w, h)) : y,
                 fmt::format("blk.{}.ffn_out", layer));
}

}  // namespace lucid::parts
