// Granite: a Llama block with factors for the embedding, the scores, the residual branches and the
// logits.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/granite_scales.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "granite");
  // The converter permutes q and k as in Llama files.
  ModelConfig c = ReadGgufCommon(h, "granite", RopeStyle::kInterleaved);
  ReadGraniteScales(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "granite", {});
  ReadGraniteScales(h, c);
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.ffn_bias = h.Bool("mlp_bias", false);
  SetLayers(c, ReadHfRope(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
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
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
