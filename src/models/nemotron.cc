// Nemotron: layer norms stored as their difference from one, two-matrix FFN with squared ReLU, part
// of each head rotated.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "nemotron");
  ModelConfig c = ReadGgufCommon(h, "nemotron", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kReluSquared;
  c.norm_bias = true;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "nemotron",
                               {.hidden_size = 6144,
                                .intermediate_size = 24576,
                                .num_attention_heads = 48,
                                .vocab_size = 256000,
                                .max_position_embeddings = 4096,
                                .norm = NormKind::kLayer,
                                .eps_key = "norm_eps",
                                .norm_eps = 1e-5,
                                .act = "relu2"});
  c.norm_bias = true;
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.ffn_bias = h.Bool("mlp_bias", false);
  SetLayers(c, ReadHfRope(h, c, {.partial = 0.5}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kNemotron = {
    .name = "nemotron",
    .gguf = "nemotron",
    .hf = {"NemotronForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kPreNormsAddOne, names::kEnds, names::kPreNorms, names::kAttention,
                 names::kFfn},
    .embed = parts::Embed,
    .block = parts::PlainBlock,
    .head = parts::Head,
};

}  // namespace lucid
