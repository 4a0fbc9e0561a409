// Parts of models with experts: the router, the experts of a layer, and an expert that all tokens
// share.
#pragma once

#include "models/config_readers.h"
#include "models/model_config.h"
#include "plan/builder.h"

namespace lucid {

// The keys expert_count, expert_used_count, expert_feed_forward_length and the like of a GGUF file
// that every architecture with experts has; all layers but the first leading_dense_block_count have
// experts. `rule` has what the architecture's name alone says.
int32_t ToInt32(int64_t n);  // the nearest

void ReadGgufExperts(GgufHparams& h, const RoutingRule& rule, ModelConfig& c);

}  // namespace lucid

namespace lucid::parts {

// The feed-forward half of a layer with experts, of the normed input h:
//   router ffn_gate_inp (bias where c.moe.router_bias), its choice (bias exp_probs_b where
//   c.moe.choice_bias), the stacks ffn_gate_exps, ffn_up_exps and ffn_down_exps, and where
//   c.moe.shared_dim > 0 a gated unit ffn_*_shexp for every token, itself times
//   sigmoid(ffn_gate_inp_shexp h) where c.moe.shared_gate.
// Names are those of GGUF files.
Value MoeFfn(Builder& b, const ModelConfig& c, int layer, Value h);

}  // namespace lucid::parts
