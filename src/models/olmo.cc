// OLMo 1: a Llama block with layer norms that have neither weights nor biases, and q, k and v
// clipped.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "olmo");
  // The converter permutes q and k as in Llama files.
  ModelConfig c = ReadGgufCommon(h, "olmo", RopeStyle::kInterleaved, NormKind::kLayer);
  c.norm_weight = false;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "olmo", {.vocab_size = 50304, .norm = NormKind::kLayer});
  c.norm_eps = 1e-5;  // no key of the config changes it
  c.norm_weight = false;
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.clip_qkv = h.Float("clip_qkv", 0);
  SetLayers(c, ReadHfRope(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kOlmo = {
    .name = "olmo",
    .gguf = "olmo",
    .hf = {"OlmoForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
