// Phi-1 to Phi-2: attention and FFN side by side from one layer norm, biases everywhere, part of
// each head rotated.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "phi2");
  ModelConfig c = ReadGgufCommon(h, "phi", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluTanh;
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = c.output_bias = true;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "phi",
                               {.hidden_size = 2048,
                                .intermediate_size = 8192,
                                .num_hidden_layers = 24,
                                .vocab_size = 51200,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_eps",
                                .norm_eps = 1e-5,
                                .act = "gelu_new"});
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = c.output_bias = true;
  h.Only("qk_layernorm", false);
  SetLayers(c, ReadHfRope(h, c, {.partial = 0.5}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::ParallelBlock(b, c, layer, x, parts::PlainFfn);
}

constexpr std::array kNames = {
    NameRule{"output_norm", "model.final_layernorm.weight"},
    NameRule{"output_norm.bias", "model.final_layernorm.bias"},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.dense.weight"},
    NameRule{"blk.{}.attn_output.bias", "model.layers.{}.self_attn.dense.bias"},
    NameRule{"blk.{}.ffn_up", "model.layers.{}.mlp.fc1.weight"},
    NameRule{"blk.{}.ffn_up.bias", "model.layers.{}.mlp.fc1.bias"},
    NameRule{"blk.{}.ffn_down", "model.layers.{}.mlp.fc2.weight"},
    NameRule{"blk.{}.ffn_down.bias", "model.layers.{}.mlp.fc2.bias"},
};

}  // namespace

extern const ArchSpec kPhi = {
    .name = "phi",
    .gguf = "phi2",
    .hf = {"PhiForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {kNames, names::kEnds, names::kPreNorms, names::kAttention},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
