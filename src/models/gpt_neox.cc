// GPT-NeoX and Pythia: attention and FFN side by side, each with its layer norm; biases everywhere;
// part of each head rotated.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "gptneox");
  ModelConfig c = ReadGgufCommon(h, "gpt_neox", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluErf;
  c.norm_bias = c.qkv_bias = c.attn_out_bias = c.ffn_bias = true;
  c.parallel_block = h.BoolOr("use_parallel_residual", true);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  keys.Bool("use_parallel_residual", c.parallel_block);
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gpt_neox",
                               {.hidden_size = 6144,
                                .intermediate_size = 24576,
                                .num_hidden_layers = 44,
                                .num_attention_heads = 64,
                                .vocab_size = 50432,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_eps",
                                .norm_eps = 1e-5,
                                .act = "gelu"});
  c.norm_bias = c.ffn_bias = true;
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", true);
  c.parallel_block = h.Bool("use_parallel_residual", true);
  SetLayers(c, ReadHfRope(h, c, {.partial = 0.25}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  if (!c.parallel_block) return parts::PreNormBlock(b, c, layer, x, parts::PlainFfn);
  return parts::ParallelBlock(b, c, layer, x, parts::PlainFfn, "ffn_norm");
}

constexpr std::array kNames = {
    NameRule{"token_embd", "gpt_neox.embed_in.weight"},
    NameRule{"output_norm", "gpt_neox.final_layer_norm.weight"},
    NameRule{"output_norm.bias", "gpt_neox.final_layer_norm.bias"},
    NameRule{"output", "embed_out.weight"},
    NameRule{"blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm.weight"},
    NameRule{"blk.{}.attn_norm.bias", "gpt_neox.layers.{}.input_layernorm.bias"},
    NameRule{"blk.{}.attn_q", "gpt_neox.layers.{}.attention.query_key_value.weight",
             Transform::kNone, Rows::kGroupQ},
    NameRule{"blk.{}.attn_q.bias", "gpt_neox.layers.{}.attention.query_key_value.bias",
             Transform::kNone, Rows::kGroupQ},
    NameRule{"blk.{}.attn_k", "gpt_neox.layers.{}.attention.query_key_value.weight",
             Transform::kNone, Rows::kGroupK},
    NameRule{"blk.{}.attn_k.bias", "gpt_neox.layers.{}.attention.query_key_value.bias",
             Transform::kNone, Rows::kGroupK},
    NameRule{"blk.{}.attn_v", "gpt_neox.layers.{}.attention.query_key_value.weight",
             Transform::kNone, Rows::kGroupV},
    NameRule{"blk.{}.attn_v.bias", "gpt_neox.layers.{}.attention.query_key_value.bias",
             Transform::kNone, Rows::kGroupV},
    NameRule{"blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense.weight"},
    NameRule{"blk.{}.attn_output.bias", "gpt_neox.layers.{}.attention.dense.bias"},
    NameRule{"blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.ffn_norm.bias", "gpt_neox.layers.{}.post_attention_layernorm.bias"},
    NameRule{"blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h.weight"},
    NameRule{"blk.{}.ffn_up.bias", "gpt_neox.layers.{}.mlp.dense_h_to_4h.bias"},
    NameRule{"blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h.weight"},
    NameRule{"blk.{}.ffn_down.bias", "gpt_neox.layers.{}.mlp.dense_4h_to_h.bias"},
};

}  // namespace

extern const ArchSpec kGptNeox = {
    .name = "gpt_neox",
    .gguf = "gptneox",
    .hf = {"GPTNeoXForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_prefix = "gpt_neox.",
    .hf_names = {kNames},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
