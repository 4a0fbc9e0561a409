// Llama 1 to 3 and everything built like it (SmolLM2): pre-norm, grouped-query attention, rope,
// gated FFN.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "llama");
  // The converter permutes q and k of Llama files, so that neighbours are rotated together.
  ModelConfig c = ReadGgufCommon(h, "llama", RopeStyle::kInterleaved);
  if (h.IntOr("expert_count", 0) > 0) {  // Mixtral
    ReadGgufExperts(h, {.score = RouteScore::kSoftmax, .normalise = true}, c);
  }
  ReadGgufWindows(h, c);  // Mistral
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "llama", {});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.ffn_bias = h.Bool("mlp_bias", false);
  SetLayers(c, ReadHfRope(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kLlama = {
    .name = "llama",
    .gguf = "llama",
    .hf = {"LlamaForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
