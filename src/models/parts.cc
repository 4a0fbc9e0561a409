#include "models/parts.h"

#include <fmt/format.h>

#include <string>

namespace lucid::parts {
namespace {

// Over groups of `dim` values of x; `n_weights` of the weight, dim or all of a row.
Value NormOf(Builder& b, const ModelConfig& c, Value x, const std::string& slot, int64_t dim,
             int64_t n_weights, bool bias) {
  const Value weight = c.norm_weight ? b.Vec(slot, n_weights) : Value{};
  if (c.norm == NormKind::kRms) return b.RmsNorm(x, weight, c.norm_eps);
  return b.LayerNorm(x, weight, bias ? b.Vec(slot + ".bias", n_weights) : Value{}, dim, c.norm_eps,
                     slot);
}

Value NormHeads(Builder& b, const ModelConfig& c, int layer, Value x, int64_t heads,
                std::string_view name) {
  if (c.qk_norm == QkNorm::kNone) return x;
  const int64_t width = heads * c.head_dim;
  const int64_t dim = c.qk_norm == QkNorm::kWholeRow ? width : c.head_dim;
  const int64_t n_weights = c.qk_norm == QkNorm::kPerHead ? c.head_dim : width;
  return NormOf(b, c, x, fmt::format("blk.{}.{}", layer, name), dim, n_weights, /*bias=*/false);
}

Value Rotate(Builder& b, const ModelConfig& c, const LayerConfig& l, Value x) {
  return l.use_rope ? b.Rope(x, c.head_dim, l.rope) : x;
}

}  // namespace

Value OptionalBias(const LayerScope& w, bool present, std::string_view name, Extent n) {
  return present ? w.Vec(std::string(name) + ".bias", n) : Value{};
}

Value Embed(Builder& b, const ModelConfig& c) {
  const Extent vocab{c.vocab_size, Axis::kVocab};
  const Value x = b.Embed(b.Mat("token_embd", vocab, c.dim), c.embed_scale);
  if (c.position_rows == 0) return x;
  const Value table = b.Mat("position_embd", c.position_rows, c.dim);
  return b.Add(x, b.EmbedPositions(table, c.position_offset));
}

Value Norm(Builder& b, const ModelConfig& c, int layer, Value x, std::string_view name) {
  return Norm(b, c, x, fmt::format("blk.{}.{}", layer, name));
}

Value Norm(Builder& b, const ModelConfig& c, Value x, std::string_view name) {
  return NormOf(b, c, x, std::string(name), c.dim, c.dim, c.norm_bias);
}

Value Head(Builder& b, const ModelConfig& c, Value x) {
  const Extent vocab{c.vocab_size, Axis::kVocab};
  x = Norm(b, c, b.GatherRows(x), "output_norm");
  Value logits = b.Linear(x, b.Mat(c.tied_embeddings ? "token_embd" : "output", vocab, c.dim),
                          c.output_bias ? b.Vec("output.bias", vocab) : Value{});
  if (c.logit_scale != 1) logits = b.Scale(logits, c.logit_scale);
  return c.logit_softcap > 0 ? b.Softcap(logits, c.logit_softcap) : logits;
}

Value Attention(Builder& b, const ModelConfig& c, int layer, Value h) {
  const LayerScope w = b.Layer(layer);
  const LayerConfig& l = c.layers[static_cast<size_t>(layer)];
  const Extent q_out{c.n_heads * c.head_dim, Axis::kHead};
  const Extent kv_out{c.n_kv_heads * c.head_dim, Axis::kKvHead};

  Value q =
      b.Linear(h, w.Mat("attn_q", q_out, c.dim), OptionalBias(w, c.qkv_bias, "attn_q", q_out));
  Value k =
      b.Linear(h, w.Mat("attn_k", kv_out, c.dim), OptionalBias(w, c.qkv_bias, "attn_k", kv_out));
  Value v =
      b.Linear(h, w.Mat("attn_v", kv_out, c.dim), OptionalBias(w, c.qkv_bias, "attn_v", kv_out));
  q = NormHeads(b, c, layer, q, c.n_heads, "attn_q_norm");
  k = NormHeads(b, c, layer, k, c.n_kv_heads, "attn_k_norm");
  if (c.clip_qkv > 0) {
    q = b.Clamp(q, c.clip_qkv);
    k = b.Clamp(k, c.clip_qkv);
    v = b.Clamp(v, c.clip_qkv);
  }
  q = Rotate(b, c, l, q);
  k = Rotate(b, c, l, k);

  Value kv =
      b.Kv({.heads = c.n_kv_heads, .k_dim = c.head_dim, .v_dim = c.head_dim, .window = l.window},
           fmt::format("blk.{}.kv", layer));
  kv = b.KvStore(kv, k, v);
  const Value a = b.Attention(q, kv,
                              {.scale = l.attn_scale > 0 ? l.attn_scale : c.attn_scale,
                               .window = l.window,
                               .softcap = c.attn_softcap,
                               .alibi_max_bias = c.alibi_max_bias,
                               .alibi_factor = c.alibi_factor,
                               .sinks = c.attn_sinks ? w.Vec("attn_sinks", c.n_heads) : Value{}});
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

Value PlainFfn(Builder& b, const ModelConfig& c, int layer, Value h) {
  const LayerScope w = b.Layer(layer);
  const Extent ffn{c.ffn_dim, Axis::kFfn};
  const Value up =
      b.Linear(h, w.Mat("ffn_up", ffn, c.dim), OptionalBias(w, c.ffn_bias, "ffn_up", ffn));
  return b.Linear(b.Activate(up, c.act), w.Mat("ffn_down", c.dim, ffn),
                  OptionalBias(w, c.ffn_bias, "ffn_down", c.dim));
}

Value AddResidual(Builder& b, const ModelConfig& c, Value x, Value h) {
  return b.Add(x, c.residual_scale == 1 ? h : b.Scale(h, c.residual_scale));
}

Value PreNormBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn) {
  x = AddResidual(b, c, x, Attention(b, c, layer, Norm(b, c, layer, x, "attn_norm")));
  return AddResidual(b, c, x, ffn(b, c, layer, Norm(b, c, layer, x, "ffn_norm")));
}

Value GatedBlock(Builder& b, const ModelConfig& c, int layer, Value x) {
  return PreNormBlock(b, c, layer, x, GatedFfn);
}

Value PlainBlock(Builder& b, const ModelConfig& c, int layer, Value x) {
  return PreNormBlock(b, c, layer, x, PlainFfn);
}

Value ParallelBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn,
                    std::string_view ffn_norm) {
  const Value h = Norm(b, c, layer, x, "attn_norm");
  const Value g = ffn_norm.empty() ? h : Norm(b, c, layer, x, ffn_norm);
  const Value attention = Attention(b, c, layer, h);
  return b.Add(b.Add(x, attention), ffn(b, c, layer, g));
}

Value PostNormBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn) {
  x = b.Add(x, Norm(b, c, layer, Attention(b, c, layer, x), "post_attention_norm"));
  return b.Add(x, Norm(b, c, layer, ffn(b, c, layer, x), "post_ffw_norm"));
}

Value SandwichBlock(Builder& b, const ModelConfig& c, int layer, Value x, Ffn ffn) {
  Value h = Attention(b, c, layer, Norm(b, c, layer, x, "attn_norm"));
  x = b.Add(x, Norm(b, c, layer, h, "post_attention_norm"));
  h = ffn(b, c, layer, Norm(b, c, layer, x, "ffn_norm"));
  return b.Add(x, Norm(b, c, layer, h, "post_ffw_norm"));
}

}  // namespace lucid::parts
