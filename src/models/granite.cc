// Granite: a Llama block with factors for the embedding, the scores, the residual branches and the
// logits.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "granite");
  // The converter permutes q and k as in Llama files.
  ModelConfig c = ReadGgufCommon(h, "granite", RopeStyle::kInterleaved);
  c.embed_scale = h.FloatOr("embedding_scale", 1.0);
  c.residual_scale = h.FloatOr("residual_scale", 1.0);
  c.attn_scale = h.FloatOr("attention.scale", c.attn_scale);
  c.logit_scale = 1.0 / h.FloatOr("logit_scale", 1.0);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "granite", {});
  c.embed_scale = h.Float("embedding_multiplier", 1.0);
  c.residual_scale = h.Float("residual_multiplier", 1.0);
  c.attn_scale = h.Float("attention_multiplier", 1.0);
  c.logit_scale = 1.0 / h.Float("logits_scaling", 1.0);
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.ffn_bias = h.Bool("mlp_bias", false);
  SetLayers(c, ReadHfRope(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::PreNormBlock(b, c, layer, x, parts::GatedFfn);
}

}  // namespace

extern const ArchSpec kGranite = {
    .name = "granite",
    .gguf = "granite",
    .hf = {"GraniteForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .to_gguf = WriteGraniteScales,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
