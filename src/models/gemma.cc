// Gemma 1: a Llama block with GeGLU, norms stored as their difference from one, and the embedding
// times sqrt(dim).
#include <array>
#include <cmath>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "gemma");
  ModelConfig c = ReadGgufCommon(h, "gemma", RopeStyle::kHalfSplit);
  c.act = Activation::kGeluTanh;
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gemma",
                               {.hidden_size = 3072,
                                .intermediate_size = 24576,
                                .num_hidden_layers = 28,
                                .num_attention_heads = 16,
                                .head_dim = 256,
                                .vocab_size = 256000,
                                .max_position_embeddings = 8192,
                                .tie_word_embeddings = true,
                                .act_key = h.Pick({"hidden_activation", "hidden_act"}),
                                .act = "gelu_pytorch_tanh"});
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  h.Only("use_bidirectional_attention", false);
  SetLayers(c, ReadHfRope(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kGemma = {
    .name = "gemma",
    .gguf = "gemma",
    .hf = {"GemmaForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kPreNormsAddOne, names::kEnds, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
