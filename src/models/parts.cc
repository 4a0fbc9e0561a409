#include "models/parts.h"

#include <fmt/format.h>

#include <string>

namespace lucid::parts {

Value OptionalBias(const LayerScope& w, bool present, std::string_view name, Extent n) {
  return present ? w.Vec(std::string(name) + ".bias", n) : Value{};
}

Value Embed(Builder& b, const ModelConfig& c) {
  const Extent vocab{c.vocab_size, Axis::kVocab};
  return b.Embed(b.Mat("token_embd", vocab, c.dim), c.embed_scale);
}

Value RmsNormHead(Builder& b, const ModelConfig& c, Value x) {
  const Extent vocab{c.vocab_size, Axis::kVocab};
  x = b.GatherRows(x);
  x = b.RmsNorm(x, b.Vec("output_norm", c.dim), c.norm_eps);
  Value logits = b.Linear(x, b.Mat(c.tied_embeddings ? "token_embd" : "output", vocab, c.dim));
  return c.logit_softcap > 0 ? b.Softcap(logits, c.logit_softcap) : logits;
}

Value GqaAttention(Builder& b, const ModelConfig& c, int layer, Value h, bool qk_norm) {
  const LayerScope w = b.Layer(layer);
  const LayerConfig& l = c.layers[static_cast<size_t>(layer)];
  const Extent q_out{c.n_heads * c.head_dim, Axis::kHead};
  const Extent kv_out{c.n_kv_heads * c.head_dim, Axis::kKvHead};

  Value q =
      b.Linear(h, w.Mat("attn_q", q_out, c.dim), OptionalBias(w, c.qkv_bias, "attn_q", q_out));
  Value k =
      b.Linear(h, w.Mat("attn_k", kv_out, c.dim), OptionalBias(w, c.qkv_bias, "attn_k", kv_out));
  const Value v =
      b.Linear(h, w.Mat("attn_v", kv_out, c.dim), OptionalBias(w, c.qkv_bias, "attn_v", kv_out));
  if (qk_norm) {
    q = b.RmsNorm(q, w.Vec("attn_q_norm", c.head_dim), c.norm_eps);
    k = b.RmsNorm(k, w.Vec("attn_k_norm", c.head_dim), c.norm_eps);
  }
  const Value factors = c.rope_freq_factors ? b.Vec("rope_freqs", l.rope.rotary_dim / 2) : Value{};
  q = b.Rope(q, c.head_dim, l.rope, factors);
  k = b.Rope(k, c.head_dim, l.rope, factors);

  Value kv =
      b.Kv({.heads = c.n_kv_heads, .k_dim = c.head_dim, .v_dim = c.head_dim, .window = l.window},
           fmt::format("blk.{}.kv", layer));
  kv = b.KvStore(kv, k, v);
  const Value a =
      b.Attention(q, kv, {.scale = c.attn_scale, .window = l.window, .softcap = c.attn_softcap});
  return b.Linear(a, w.Mat("attn_output", c.dim, q_out),
                  OptionalBias(w, c.attn_out_bias, "attn_output", c.dim));
}

Value GatedFfn(Builder& b, const ModelConfig& c, int layer, Value h) {
  const LayerScope w = b.Layer(layer);
  const Extent ffn{c.ffn_dim, Axis::kFfn};
  const Value gate =
      b.Linear(h, w.Mat("ffn_gate", ffn, c.dim), OptionalBias(w, c.ffn_bias, "ffn_gate", ffn));
  const Value up =
      b.Linear(h, w.Mat("ffn_up", ffn, c.dim), OptionalBias(w, c.ffn_bias, "ffn_up", ffn));
  return b.Linear(b.Glu(gate, up, c.act), w.Mat("ffn_down", c.dim, ffn),
                  OptionalBias(w, c.ffn_bias, "ffn_down", c.dim));
}

}  // namespace lucid::parts
