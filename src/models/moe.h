// Models with experts: what their config readers and blocks share.
#pragma once

#include <string_view>

#include "models/config_readers.h"
#include "models/model_config.h"
#include "plan/builder.h"

namespace lucid {

// Of GGUF files: expert_count, expert_used_count, expert_feed_forward_length, expert_weights_norm
// and _scale, expert_gating_func, expert_group_count and _used_count, expert_shared_count, biases
// by the tensors that exist. All layers but the first leading_dense_block_count have experts.
// `rule` has what the architecture alone says of the routing.
void ReadGgufExperts(GgufHparams& h, const RoutingRule& rule, ModelConfig& c);

// Of config.json: the numbers under the keys that a family uses.
struct HfExpertKeys {
  const char* n_experts = "num_experts";
  int64_t n_experts_absent = 0;
  const char* dim = "moe_intermediate_size";
  int64_t dim_absent = 0;
  int64_t n_used_absent = 0;    // num_experts_per_tok
  const char* first = nullptr;  // the key of the first layer that has them; nullptr: all have
  int64_t first_absent = 0;
};
void ReadHfExperts(HfConfigReader& h, const HfExpertKeys& keys, const RoutingRule& rule,
                   ModelConfig& c);

// What DeepSeek-V3 and models after it share in config.json: sigmoid scores, a bias for the choice,
// groups of experts, shared experts.
void ReadHfSigmoidRouting(HfConfigReader& h, double scale_absent, int64_t groups_absent,
                          int64_t groups_used_absent, ModelConfig& c);

// Qwen's switch: only every decoder_sparse_step-th layer has experts, and none in mlp_only_layers.
void SetQwenExpertLayers(HfConfigReader& h, ModelConfig& c);

}  // namespace lucid

namespace lucid::parts {

// The feed-forward half of a layer, of the normed input h. With experts:
//   router ffn_gate_inp (bias where c.moe.router_bias), its choice (bias exp_probs_b where
//   c.moe.choice_bias), the stacks ffn_gate_exps, ffn_up_exps and ffn_down_exps, and where
//   c.moe.shared_dim > 0 a gated unit ffn_*_shexp for every token, itself times
//   sigmoid(ffn_gate_inp_shexp h) where c.moe.shared_gate. Else GatedFfn.
Value ExpertFfn(Builder& b, const ModelConfig& c, int layer, Value h);
// A pre-norm block (parts.h) with it.
Value ExpertBlock(Builder& b, const ModelConfig& c, int layer, Value x);

}  // namespace lucid::parts
