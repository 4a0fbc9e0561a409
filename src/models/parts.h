// Parts that architectures share. Each emits ops into the builder; models/<family>.cc puts them
// together. Slots are named as the tensors of GGUF files.
#pragma once

#include <string_view>

#include "models/model_config.h"
#include "plan/builder.h"

namespace lucid::parts {

// Slots whose name ends so: "attn_q" has the bias "attn_q.bias".
Value OptionalBias(const LayerScope& w, bool present, std::string_view name, Extent n);

// token_embd rows times embed_scale, plus position_embd rows where the model learned positions.
Value Embed(Builder& b, const ModelConfig& c);

// The model's kind of norm over the whole residual stream, with the slot `name` of the layer (and
// its bias, where norms have one).
Value Norm(Builder& b, const ModelConfig& c, int layer, Value x, std::string_view name);
// The same for a slot outside of the layers.
Value Norm(Builder& b, const ModelConfig& c, Value x, std::string_view name);

// Gathers the output rows, final norm, output matrix (the embedding where tied), logit_scale,
// optional soft cap.
Value Head(Builder& b, const ModelConfig& c, Value x);

// Grouped-query attention of the normed input h: q, k, v (optional biases, norms, clipping), rope
// or ALiBi where the layer has it, cache, attention, output projection.
Value Attention(Builder& b, const ModelConfig& c, int layer, Value h);

// ffn_down(act(ffn_gate h) * ffn_up h).
Value GatedFfn(Builder& b, const ModelConfig& c, int layer, Value h);
// ffn_down(act(ffn_up h)).
Value PlainFfn(Builder& b, const ModelConfig& c, int layer, Value h);

// x + residual_scale * h.
Value AddResidual(Builder& b, const ModelConfig& c, Value x, Value h);

// x + Attention(norm x), then x + ffn(norm x): the block of GPT-2, Llama and most others.
using Ffn = Value (*)(Builder& b, const ModelConfig& c, int layer, Value h);
Value PreNormBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn);
// The same with GatedFfn or PlainFfn, as ArchSpec::block wants it (with experts: moe.h).
Value GatedBlock(Builder& b, const ModelConfig& c, int layer, Value x);
Value PlainBlock(Builder& b, const ModelConfig& c, int layer, Value x);
// x + attention(norm x) + ffn(norm x), with one norm for both (attn_norm), or the slot `ffn_norm`
// for the FFN's where that is not empty.
Value ParallelBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn,
                    std::string_view ffn_norm = {});
// x + norm(attention x), then x + norm(ffn x).
Value PostNormBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn);
// A pre-norm block with a norm behind each half as well: Gemma 2 and 3, GLM-4.
Value SandwichBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn);

}  // namespace lucid::parts
