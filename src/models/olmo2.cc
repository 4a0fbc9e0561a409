// OLMo 2: norms only behind each half of the block, and over all heads of q and of k together.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "olmo2");
  ModelConfig c = ReadGgufCommon(h, "olmo2", RopeStyle::kHalfSplit);
  c.qk_norm = QkNorm::kWholeRow;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "olmo2", {.vocab_size = 50304, .norm_eps = 1e-5});
  c.qk_norm = QkNorm::kWholeRow;
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  SetLayers(c, ReadHfRope(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::PostNormBlock(b, c, layer, x, parts::GatedFfn);
}

}  // namespace

extern const ArchSpec kOlmo2 = {
    .name = "olmo2",
    .gguf = "olmo2",
    .hf = {"Olmo2ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPostNorms, names::kAttention, names::kQkNorms, names::kFfn},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
