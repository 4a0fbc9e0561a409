// Qwen2 and Qwen2.5: a Llama block with biases on q, k and v, and a window on the upper layers
// where switched on.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "qwen2");
  ModelConfig c = ReadGgufCommon(h, "qwen2", RopeStyle::kHalfSplit);
  c.qkv_bias = true;
  ReadGgufWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "qwen2",
                               {.intermediate_size = 22016,
                                .num_key_value_heads = 32,
                                .vocab_size = 151936,
                                .max_position_embeddings = 32768});
  c.qkv_bias = true;
  SetLayers(c, ReadHfRope(h, c));
  SetQwenWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kQwen2 = {
    .name = "qwen2",
    .gguf = "qwen2",
    .hf = {"Qwen2ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
