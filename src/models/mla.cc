#include "models/mla.h"

#include <fmt/format.h>

namespace lucid::parts {

Value LatentAttention(Builder& b, const ModelConfig& c, int layer, Value h) {
  const LayerScope w = b.Layer(layer);
  const MlaConfig& m = c.mla;
  const RopeSpec& rope = c.layers[static_cast<size_t>(layer)].rope;
  const Extent heads{c.n_heads, Axis::kHead};
  const Extent q_out{c.n_heads * (m.nope + m.rope), Axis::kHead};

  // Products of h follow each other, so that they can be computed together.
  Value q = m.q_lora > 0 ? b.Linear(h, w.Mat("attn_q_a", m.q_lora, c.dim))
                         : b.Linear(h, w.Mat("attn_q", q_out, c.dim));
  Value latent = b.Linear(h, w.Mat("attn_kv_a", m.kv_lora, c.dim));
  Value k_pe = b.Linear(h, w.Mat("attn_k_pe", m.rope, c.dim));
  if (m.q_lora > 0) {
    q = b.RmsNorm(q, w.Vec("attn_q_a_norm", m.q_lora), m.norm_eps);
    q = b.Linear(q, w.Mat("attn_q_b", q_out, m.q_lora));
  }
  q = b.RopePart(q, m.nope + m.rope, m.nope, rope);
  k_pe = b.Rope(k_pe, m.rope, rope);
  latent = b.RmsNorm(latent, w.Vec("attn_kv_a_norm", m.kv_lora), m.norm_eps);

  Value kv = b.Kv({.heads = 1, .k_dim = m.kv_lora + m.rope, .v_dim = 0, .window = 0},
                  fmt::format("blk.{}.kv", layer));
  kv = b.KvStore(kv, b.Concat(latent, k_pe, {.parts = 1, .b_dim = m.rope}), {});
  const Value w_k = w.Stack("attn_k_b", heads, m.kv_lora, m.nope);
  const Value w_v = w.Stack("attn_v_b", heads, m.v_dim, m.kv_lora);

  const auto scale = static_cast<float>(c.attn_scale);
  const Value given =
      b.MlaAttention(q, kv, w_k, w_v, {.scale = scale, .n_heads = c.n_heads, .rope_dim = m.rope});
  const Value absorbed = b.Concat(b.HeadLinear(q, w_k, /*generated_only=*/true), q,
                                  {.parts = c.n_heads, .b_dim = m.rope, .generated_only = true});
  const Value latents = b.Attention(
      absorbed, kv, {.scale = c.attn_scale, .v_in_k = m.kv_lora, .generated_only = true});
  const Value generated = b.HeadLinear(latents, w_v, /*generated_only=*/true);
  return b.Linear(b.ByPhase(given, generated),
                  w.Mat("attn_output", c.dim, {c.n_heads * m.v_dim, Axis::kHead}));
}

}  // namespace lucid::parts
