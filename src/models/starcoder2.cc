// StarCoder2: grouped-query attention and rope with GPT-2's layer norms, biases and two-matrix FFN,
// and a sliding window.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "starcoder2");
  ModelConfig c = ReadGgufCommon(h, "starcoder2", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluTanh;
  c.norm_bias = true;
  ReadGgufWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "starcoder2",
                               {.hidden_size = 3072,
                                .intermediate_size = 12288,
                                .num_hidden_layers = 30,
                                .num_attention_heads = 24,
                                .num_key_value_heads = 2,
                                .vocab_size = 49152,
                                .max_position_embeddings = 4096,
                                .norm = NormKind::kLayer,
                                .eps_key = "norm_epsilon",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true,
                                .act = "gelu_pytorch_tanh"});
  c.norm_bias = true;
  c.qkv_bias = c.attn_out_bias = c.ffn_bias = h.Bool("use_bias", true);
  SetLayers(c, ReadHfRope(h, c), h.Int("sliding_window", 0));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kFfn = {
    NameRule{"blk.{}.ffn_up", "model.layers.{}.mlp.c_fc.weight"},
    NameRule{"blk.{}.ffn_up.bias", "model.layers.{}.mlp.c_fc.bias"},
    NameRule{"blk.{}.ffn_down", "model.layers.{}.mlp.c_proj.weight"},
    NameRule{"blk.{}.ffn_down.bias", "model.layers.{}.mlp.c_proj.bias"},
};

}  // namespace

extern const ArchSpec kStarcoder2 = {
    .name = "starcoder2",
    .gguf = "starcoder2",
    .hf = {"Starcoder2ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {kFfn, names::kEnds, names::kPreNorms, names::kAttention},
    .embed = parts::Embed,
    .block = parts::PlainBlock,
    .head = parts::Head,
};

}  // namespace lucid
