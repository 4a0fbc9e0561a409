// GLM-4: norms before and after each half of the block, biases on q, k and v, gate and up in one
// stored matrix, neighbours rotated in half of each head.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "glm4");
  const ModelConfig c = ReadGgufCommon(h, "glm4", RopeStyle::kInterleaved);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "glm4",
                               {.intermediate_size = 13696,
                                .num_hidden_layers = 40,
                                .num_key_value_heads = 2,
                                .head_dim = 128,
                                .vocab_size = 151552,
                                .max_position_embeddings = 131072,
                                .norm_eps = 1.5625e-7});
  c.qkv_bias = h.Bool("attention_bias", true);
  SetLayers(c, ReadHfRope(h, c, {.partial = 0.5, .style = RopeStyle::kInterleaved}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::SandwichBlock(b, c, layer, x, parts::GatedFfn);
}

constexpr std::array kNorms = {
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight"},
    NameRule{"blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm.weight"},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm.weight"},
};

}  // namespace

extern const ArchSpec kGlm4 = {
    .name = "glm4",
    .gguf = "glm4",
    .hf = {"Glm4ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {kNorms, names::kEnds, names::kAttention, names::kFusedGateUp},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
