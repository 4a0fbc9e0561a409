// GPT-2: learned positions, layer norms with biases, two-matrix FFN with GELU. Hugging Face files
// store its matrices transposed (Conv1D).
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "gpt2");
  ModelConfig c = ReadGgufCommon(h, "gpt2", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluTanh;
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = true;
  if (c.position_rows == 0) {
    h.Fail({ErrorCode::kInvalidFile, "tensor position_embd.weight is missing"});
  }
  SetNoRope(c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gpt2",
                               {.hidden_size = 768,
                                .intermediate_size = 0,
                                .num_hidden_layers = 12,
                                .num_attention_heads = 12,
                                .vocab_size = 50257,
                                .max_position_embeddings = 1024,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_epsilon",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true,
                                .act_key = "activation_function",
                                .act = "gelu_new"});
  c.position_rows = c.context_length;
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = true;
  h.Only("add_cross_attention", false);
  if (!h.Bool("scale_attn_weights", true)) c.attn_scale = 1.0;
  const bool by_layer = h.Bool("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].use_rope = false;
    if (by_layer) c.layers[i].attn_scale = c.attn_scale / static_cast<double>(i + 1);
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kNames = {
    NameRule{"token_embd", "transformer.wte.weight"},
    NameRule{"position_embd", "transformer.wpe.weight"},
    NameRule{"output_norm", "transformer.ln_f.weight"},
    NameRule{"output_norm.bias", "transformer.ln_f.bias"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "transformer.h.{}.ln_1.weight"},
    NameRule{"blk.{}.attn_norm.bias", "transformer.h.{}.ln_1.bias"},
    NameRule{"blk.{}.attn_q", "transformer.h.{}.attn.c_attn.weight", Transform::kTranspose,
             Rows::kQ},
    NameRule{"blk.{}.attn_q.bias", "transformer.h.{}.attn.c_attn.bias", Transform::kNone, Rows::kQ},
    NameRule{"blk.{}.attn_k", "transformer.h.{}.attn.c_attn.weight", Transform::kTranspose,
             Rows::kK},
    NameRule{"blk.{}.attn_k.bias", "transformer.h.{}.attn.c_attn.bias", Transform::kNone, Rows::kK},
    NameRule{"blk.{}.attn_v", "transformer.h.{}.attn.c_attn.weight", Transform::kTranspose,
             Rows::kV},
    NameRule{"blk.{}.attn_v.bias", "transformer.h.{}.attn.c_attn.bias", Transform::kNone, Rows::kV},
    NameRule{"blk.{}.attn_output", "transformer.h.{}.attn.c_proj.weight", Transform::kTranspose},
    NameRule{"blk.{}.attn_output.bias", "transformer.h.{}.attn.c_proj.bias"},
    NameRule{"blk.{}.ffn_norm", "transformer.h.{}.ln_2.weight"},
    NameRule{"blk.{}.ffn_norm.bias", "transformer.h.{}.ln_2.bias"},
    NameRule{"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc.weight", Transform::kTranspose},
    NameRule{"blk.{}.ffn_up.bias", "transformer.h.{}.mlp.c_fc.bias"},
    NameRule{"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj.weight", Transform::kTranspose},
    NameRule{"blk.{}.ffn_down.bias", "transformer.h.{}.mlp.c_proj.bias"},
};

}  // namespace

extern const ArchSpec kGpt2 = {
    .name = "gpt2",
    .gguf = "gpt2",
    .hf = {"GPT2LMHeadModel"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_prefix = "transformer.",
    .hf_names = {kNames},
    .embed = parts::Embed,
    .block = parts::PlainBlock,
    .head = parts::Head,
};

}  // namespace lucid
