// Parts that architectures share. Each emits ops into the builder; models/<family>.cc puts them
// together.
#pragma once

#include "models/model_config.h"
#include "plan/builder.h"

namespace lucid::parts {

// Slots whose name ends so: "attn_q" has the bias "attn_q.bias".
Value OptionalBias(const LayerScope& w, bool present, std::string_view name, Extent n);

// token_embd rows times embed_scale.
Value Embed(Builder& b, const ModelConfig& c);

// Gathers the output rows, final norm, output matrix (the embedding where tied), optional soft cap.
Value RmsNormHead(Builder& b, const ModelConfig& c, Value x);

// Grouped-query attention of the normed input h: q, k, v (optional biases), rope, cache, attention,
// output projection. `qk_norm`: an RMS norm per head on q and k before rope (slots attn_q_norm,
// attn_k_norm).
Value GqaAttention(Builder& b, const ModelConfig& c, int layer, Value h, bool qk_norm);

// ffn_down(act(ffn_gate h) * ffn_up h).
Value GatedFfn(Builder& b, const ModelConfig& c, int layer, Value h);

}  // namespace lucid::parts
