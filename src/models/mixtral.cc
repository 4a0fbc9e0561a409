// Mixtral (Jiang et al. 2024, arXiv 2401.04088): a Llama block whose feed-forward half is eight
// experts, two for every token. GGUF files call it llama (llama.cc).
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile&) {
  return Err(ErrorCode::kUnsupported, "GGUF files of Mixtral have the architecture llama");
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "mixtral",
                               {.intermediate_size = 14336,
                                .num_key_value_heads = 8,
                                .max_position_embeddings = 131072,
                                .rms_norm_eps = 1e-5});
  c.moe.n_experts = h.Int("num_local_experts", 8);
  c.moe.expert_dim = c.ffn_dim;
  c.moe.rule = {.n_used = ToInt32(h.Int("num_experts_per_tok", 2)),
                .score = RouteScore::kSoftmax,
                .normalise = true};
  c.moe.glu.act = c.act;
  const LayerConfig layer = {.window = h.Int("sliding_window", 0),
                             .rope = ReadHfRope(h, 1000000.0, c.head_dim),
                             .experts = true};
  for (LayerConfig& l : c.layers) l = layer;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  const LayerScope w = b.Layer(layer);
  Value h = b.RmsNorm(x, w.Vec("attn_norm", c.dim), c.norm_eps);
  x = b.Add(x, parts::GqaAttention(b, c, layer, h, /*qk_norm=*/false));
  h = b.RmsNorm(x, w.Vec("ffn_norm", c.dim), c.norm_eps);
  return b.Add(x, parts::MoeFfn(b, c, layer, h));
}

constexpr std::array kHfNames = {
    NameRule{"token_embd", "model.embed_tokens.weight"},
    NameRule{"output_norm", "model.norm.weight"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight"},
    NameRule{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj.weight"},
    NameRule{"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj.weight"},
    NameRule{"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj.weight"},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj.weight"},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate.weight"},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2.weight"},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3.weight"},
};

}  // namespace

extern const ArchSpec kMixtral = {
    .name = "mixtral",
    .gguf = "",
    .hf = "MixtralForCausalLM",
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = kHfNames,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::RmsNormHead,
};

}  // namespace lucid
