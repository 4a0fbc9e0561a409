// BLOOM: ALiBi instead of positions, a norm after the embedding, layer norms with biases, GELU.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr double kMaxBias = 8.0;  // of ALiBi

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "bloom");
  ModelConfig c = ReadGgufCommon(h, "bloom", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluTanh;
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = true;
  c.alibi_max_bias = kMaxBias;
  SetNoRope(c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "bloom",
                               {.hidden_size = 64,
                                .intermediate_size = 0,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 8,
                                .vocab_size = 250880,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_epsilon",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true,
                                .act_key = "hidden_act",
                                .act = "gelu_pytorch_tanh"});
  c.alibi_max_bias = kMaxBias;
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = true;
  c.residual_from_norm = h.Bool("apply_residual_connection_post_layernorm", false);
  SetNoRope(c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Embed(Builder& b, const ModelConfig& c) {
  return parts::Norm(b, c, parts::Embed(b, c), "token_embd_norm");
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  Value h = parts::Norm(b, c, layer, x, "attn_norm");
  x = b.Add(c.residual_from_norm ? h : x, parts::Attention(b, c, layer, h));
  h = parts::Norm(b, c, layer, x, "ffn_norm");
  return b.Add(c.residual_from_norm ? h : x, parts::PlainFfn(b, c, layer, h));
}

constexpr std::array kNames = {
    NameRule{"token_embd", "transformer.word_embeddings.weight"},
    NameRule{"token_embd_norm", "transformer.word_embeddings_layernorm.weight"},
    NameRule{"token_embd_norm.bias", "transformer.word_embeddings_layernorm.bias"},
    NameRule{"output_norm", "transformer.ln_f.weight"},
    NameRule{"output_norm.bias", "transformer.ln_f.bias"},
    NameRule{"output", "lm_head.weight"},
};

}  // namespace

extern const ArchSpec kBloom = {
    .name = "bloom",
    .gguf = "bloom",
    .hf = {"BloomForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_prefix = "transformer.",
    .hf_names = {kNames, names::kMegatron},
    .embed = Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
