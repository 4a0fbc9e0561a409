// MPT: ALiBi instead of positions, layer norms without biases, GELU, q, k and v clipped.
#include <array>
#include <nlohmann/json.hpp>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "mpt");
  ModelConfig c = ReadGgufCommon(h, "mpt", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluErf;
  c.alibi_max_bias = h.FloatOr("attention.max_alibi_bias", 8.0);
  SetNoRope(c);
  if (c.position_rows > 0 || c.alibi_max_bias <= 0) {
    h.Fail({ErrorCode::kUnsupported, "mpt: learned positions are not supported, only ALiBi"});
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  keys.Float("attention.max_alibi_bias", c.alibi_max_bias);
}

// attn_config of config.json.
void ReadAttention(HfConfigReader& h, ModelConfig& c) {
  c.alibi_max_bias = 8.0;
  if (!h.Has("attn_config")) return;
  HfConfigReader a(h.json()["attn_config"], "attn_config");
  a.Only("alibi", true);
  a.Only("qk_ln", false);
  a.Only("prefix_lm", false);
  a.Only("attn_uses_sequence_id", false);
  a.Only("attn_type", "multihead_attention");
  c.alibi_max_bias = a.Float("alibi_bias_max", 8.0);
  c.attn_scale = a.Float("softmax_scale", c.attn_scale);
  c.clip_qkv = a.Float("clip_qkv", 0);
  if (const Status status = a.status(); !status) h.Fail(status.error());
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "mpt",
                               {.hidden_size = 2048,
                                .intermediate_size = 0,
                                .num_hidden_layers = 24,
                                .num_attention_heads = 16,
                                .vocab_size = 50368,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_epsilon",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true,
                                .act = "gelu"});
  c.ffn_dim = h.Int("expansion_ratio", 4) * c.dim;
  h.Only("no_bias", true);
  h.Only("logit_scale", 1.0);
  h.Only("norm_type", "low_precision_layernorm");
  ReadAttention(h, c);
  SetNoRope(c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kNames = {
    NameRule{"token_embd", "transformer.wte.weight"},
    NameRule{"output_norm", "transformer.norm_f.weight"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "transformer.blocks.{}.norm_1.weight"},
    NameRule{"blk.{}.attn_q", "transformer.blocks.{}.attn.Wqkv.weight", Transform::kNone, Rows::kQ},
    NameRule{"blk.{}.attn_k", "transformer.blocks.{}.attn.Wqkv.weight", Transform::kNone, Rows::kK},
    NameRule{"blk.{}.attn_v", "transformer.blocks.{}.attn.Wqkv.weight", Transform::kNone, Rows::kV},
    NameRule{"blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj.weight"},
    NameRule{"blk.{}.ffn_norm", "transformer.blocks.{}.norm_2.weight"},
    NameRule{"blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj.weight"},
    NameRule{"blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj.weight"},
};

}  // namespace

extern const ArchSpec kMpt = {
    .name = "mpt",
    .gguf = "mpt",
    .hf = {"MptForCausalLM", "MPTForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_prefix = "transformer.",
    .hf_names = {kNames},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = parts::PlainBlock,
    .head = parts::Head,
};

}  // namespace lucid
