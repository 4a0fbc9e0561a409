// Llama 1 to 3 and everything built like it (SmolLM2, Mistral 7B without a window): pre-norm, GQA,
// rope, gated FFN.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "llama");
  // The converter permutes q and k of Llama files, so that neighbours are rotated together.
  ModelConfig c = ReadGgufCommon(h, "llama", RopeStyle::kInterleaved);
  if (h.IntOr("expert_count", 0) > 0) {  // Mixtral
    ReadGgufExperts(h, {.score = RouteScore::kSoftmax, .normalise = true}, c);
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "llama", {});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.ffn_bias = h.Bool("mlp_bias", false);
  const RopeSpec rope = ReadHfRope(h, 10000.0, c.head_dim);
  for (LayerConfig& layer : c.layers) layer.rope = rope;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  const LayerScope w = b.Layer(layer);
  Value h = b.RmsNorm(x, w.Vec("attn_norm", c.dim), c.norm_eps);
  x = b.Add(x, parts::GqaAttention(b, c, layer, h, /*qk_norm=*/false));
  h = b.RmsNorm(x, w.Vec("ffn_norm", c.dim), c.norm_eps);
  const bool experts = c.layers[static_cast<size_t>(layer)].experts;
  return b.Add(x, experts ? parts::MoeFfn(b, c, layer, h) : parts::GatedFfn(b, c, layer, h));
}

constexpr std::array kHfNames = {
    NameRule{"token_embd", "model.embed_tokens.weight"},
    NameRule{"output_norm", "model.norm.weight"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight"},
    NameRule{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj.weight"},
    NameRule{"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    NameRule{"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj.weight"},
    NameRule{"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    NameRule{"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj.weight"},
    NameRule{"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj.weight"},
    NameRule{"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj.weight"},
    NameRule{"blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias"},
    NameRule{"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj.weight"},
    NameRule{"blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias"},
    NameRule{"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj.weight"},
    NameRule{"blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias"},
};

Result<ModelConfig> Qwen2FromGguf(const GgufFile& file) {
  GgufHparams h(file, "qwen2");
  const ModelConfig c = ReadGgufCommon(h, "qwen2", RopeStyle::kHalfSplit);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// Qwen2 and Qwen2.5: a Llama block with biases on q, k and v, and a window on the upper layers
// where switched on.
Result<ModelConfig> Qwen2FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "qwen2",
                               {.intermediate_size = 22016,
                                .num_key_value_heads = 32,
                                .vocab_size = 151936,
                                .max_position_embeddings = 32768});
  c.qkv_bias = true;
  const RopeSpec rope = ReadHfRope(h, 10000.0, c.head_dim);
  const bool windows = h.Bool("use_sliding_window", false);
  const int64_t window = h.Int("sliding_window", windows ? 4096 : 0);
  const int64_t first_window_layer = h.Int("max_window_layers", 28);
  for (int64_t i = 0; i < static_cast<int64_t>(c.layers.size()); ++i) {
    c.layers[static_cast<size_t>(i)] = {.window = windows && i >= first_window_layer ? window : 0,
                                        .rope = rope};
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kLlama = {
    .name = "llama",
    .gguf = "llama",
    .hf = "LlamaForCausalLM",
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = kHfNames,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::RmsNormHead,
};

extern const ArchSpec kQwen2 = {
    .name = "qwen2",
    .gguf = "qwen2",
    .hf = "Qwen2ForCausalLM",
    .from_gguf = Qwen2FromGguf,
    .from_hf = Qwen2FromHf,
    .hf_names = kHfNames,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::RmsNormHead,
};

}  // namespace lucid
