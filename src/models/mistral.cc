// Mistral from Hugging Face files: a Llama block with a sliding window in every layer. In GGUF
// files it is a "llama".
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(
      h, "mistral",
      {.intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 131072});
  SetLayers(c, ReadHfRope(h, c), h.IntOrNull("sliding_window", 4096));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kMistral = {
    .name = "mistral",
    .gguf = "",
    .hf = {"MistralForCausalLM"},
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .gguf_as = "llama",
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
