// Qwen3: a Qwen2 block without biases and with norms over every head of q and k.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "qwen3");
  ModelConfig c = ReadGgufCommon(h, "qwen3", RopeStyle::kHalfSplit);
  c.qk_norm = QkNorm::kPerHead;
  ReadGgufWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "qwen3",
                               {.intermediate_size = 22016,
                                .num_key_value_heads = 32,
                                .head_dim = 128,
                                .vocab_size = 151936,
                                .max_position_embeddings = 32768});
  c.qk_norm = QkNorm::kPerHead;
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  SetLayers(c, ReadHfRope(h, c));
  SetQwenWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kQwen3 = {
    .name = "qwen3",
    .gguf = "qwen3",
    .hf = {"Qwen3ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn, names::kQkNorms},
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
