#include "models/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/parts.h"

namespace lucid {
namespace {

int32_t ToInt32(int64_t n) {
  return static_cast<int32_t>(std::clamp<int64_t>(n, INT32_MIN, INT32_MAX));
}

void SetExpertLayers(ModelConfig& c, int64_t first) {
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].experts = static_cast<int64_t>(i) >= first;
  }
}

// expert_gating_func of GGUF files.
RouteScore GgufScore(GgufHparams& h, RouteScore absent) {
  const int64_t id = h.IntOr("expert_gating_func", 0);
  switch (id) {
    case 0:
      return absent;
    case 1:
      return RouteScore::kSoftmax;
    case 2:
      return RouteScore::kSigmoid;
    case 3:
      return RouteScore::kChosenSoftmax;
    default:
      h.Fail({ErrorCode::kUnsupported,
              fmt::format("expert_gating_func {} is not supported; supported: 1, 2, 3", id)});
      return absent;
  }
}

}  // namespace

void ReadGgufExperts(GgufHparams& h, const RoutingRule& rule, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  moe.n_experts = h.Int("expert_count");
  moe.expert_dim = h.IntOr("expert_feed_forward_length", c.ffn_dim);
  moe.rule = rule;
  moe.rule.n_used = ToInt32(h.Int("expert_used_count"));
  moe.rule.score = GgufScore(h, rule.score);
  moe.rule.group_pairs = moe.rule.score == RouteScore::kSigmoid;
  moe.rule.normalise = h.BoolOr("expert_weights_norm", rule.normalise);
  // Files write 0 where the model has no factor.
  const double scale = h.FloatOr("expert_weights_scale", 0);
  moe.rule.scale = static_cast<float>(scale != 0 ? scale : 1.0);
  moe.rule.n_groups = ToInt32(std::max<int64_t>(1, h.IntOr("expert_group_count", 1)));
  moe.rule.groups_used =
      ToInt32(std::max<int64_t>(1, h.IntOr("expert_group_used_count", moe.rule.n_groups)));
  moe.glu.act = c.act;
  moe.shared_dim = h.IntOr("expert_shared_feed_forward_length",
                           h.IntOr("expert_shared_count", 0) * moe.expert_dim);
  moe.router_bias = h.LayersHave({"ffn_gate_inp.bias"});
  // Scores by sigmoid and a bias for the choice came together (DeepSeek-V3).
  moe.choice_bias = moe.rule.score == RouteScore::kSigmoid || h.LayersHave({"exp_probs_b.bias"});
  moe.expert_bias = h.LayersHave({"ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias"});
  moe.shared_gate = h.LayersHave({"ffn_gate_inp_shexp.weight"});
  SetExpertLayers(c, h.IntOr("leading_dense_block_count", 0));
}

void ReadHfExperts(HfConfigReader& h, const HfExpertKeys& keys, const RoutingRule& rule,
                   ModelConfig& c) {
  MoeConfig& moe = c.moe;
  moe.n_experts = h.Int(h.Pick({keys.n_experts, "num_local_experts"}), keys.n_experts_absent);
  moe.expert_dim = h.Int(keys.dim, keys.dim_absent);
  moe.rule = rule;
  moe.rule.n_used = ToInt32(h.Int("num_experts_per_tok", keys.n_used_absent));
  moe.glu.act = c.act;
  SetExpertLayers(c, keys.first != nullptr ? h.Int(keys.first, keys.first_absent) : 0);
}

void ReadHfSigmoidRouting(HfConfigReader& h, double scale_absent, int64_t groups_absent,
                          int64_t groups_used_absent, ModelConfig& c) {
  MoeConfig& moe = c.moe;
  moe.rule.score = RouteScore::kSigmoid;
  moe.rule.group_pairs = true;
  moe.rule.n_groups = ToInt32(h.Int("n_group", groups_absent));
  moe.rule.groups_used = ToInt32(h.Int("topk_group", groups_used_absent));
  moe.rule.normalise = h.Bool("norm_topk_prob", true);
  moe.rule.scale = static_cast<float>(h.Float("routed_scaling_factor", scale_absent));
  moe.choice_bias = true;
  moe.shared_dim = h.Int("n_shared_experts", 1) * moe.expert_dim;
}

void SetQwenExpertLayers(HfConfigReader& h, ModelConfig& c) {
  const int64_t step = h.Int("decoder_sparse_step", 1);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].experts = step > 0 && (static_cast<int64_t>(i) + 1) % step == 0;
  }
  if (!h.Has("mlp_only_layers")) return;
  const nlohmann::ordered_json& dense = h.json()["mlp_only_layers"];
  for (const nlohmann::ordered_json& layer : dense) {
    if (!layer.is_number_unsigned() || layer.get<size_t>() >= c.layers.size()) {
      h.Fail({ErrorCode::kInvalidFile,
              fmt::format("config.json: mlp_only_layers names the layer {}", layer.dump())});
      return;
    }
    c.layers[layer.get<size_t>()].experts = false;
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

Value ExpertFfn(Builder& b, const ModelConfig& c, int layer, Value h) {
  if (!c.layers[static_cast<size_t>(layer)].experts) return GatedFfn(b, c, layer, h);
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

Value ExpertBlock(Builder& b, const ModelConfig& c, int layer, Value x) {
  return PreNormBlock(b, c, layer, x, ExpertFfn);
}

}  // namespace lucid::parts
