// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache keeps for each token a
// latent vector, of which every head makes its key and value, and a rotated key part that all heads
// share.
//
// Both forms of it are in the plan. Given tokens take the expanded one: keys and values of a head
// are made of the latents once and meet all tokens. Generated tokens take the absorbed one: the
// head's key matrix is applied to its query and the value matrix to what attention over the latents
// gives, so nothing is made of the cache. Which form a token takes follows from its phase alone,
// hence its bits do not depend on what is computed beside it.
#pragma once

#include "models/model_config.h"
#include "plan/builder.h"

namespace lucid::parts {

// Of the normed input h. Slots: attn_q, or attn_q_a, attn_q_a_norm and attn_q_b where c.mla.q_lora
// > 0; attn_kv_a [lora] and attn_k_pe [rope], the two parts of the tensor attn_kv_a_mqa;
// attn_kv_a_norm; by head attn_k_b [lora, nope] and attn_v_b [v, lora]; attn_output.
Value LatentAttention(Builder& b, const ModelConfig& c, int layer, Value h);

}  // namespace lucid::parts
