// Gemma 3 (text): norms before and after each half of the block, q and k norms, five windowed
// layers to each global one, another rope base in the windowed layers, embedding times sqrt(dim).
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr double kLocalTheta = 10000.0;
constexpr int64_t kPattern = 6;  // every sixth layer is global

// Layer i is global when (i + 1) is a multiple of the pattern.
bool IsGlobal(int64_t layer, int64_t pattern) {
  return pattern > 0 && (layer + 1) % pattern == 0;
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "gemma3");
  ModelConfig c = ReadGgufCommon(h, "gemma3", RopeStyle::kHalfSplit);
  c.act = Activation::kGeluTanh;
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.logit_softcap = h.FloatOr("final_logit_softcapping", 0);
  // The file does not say query_pre_attn_scalar; of the published sizes only 27B (62 layers) has
  // another than head_dim.
  if (c.n_layers == 62 && c.n_heads > 0)
    c.attn_scale = 1.0 / std::sqrt(static_cast<double>(c.dim) / static_cast<double>(c.n_heads));
  const int64_t window = h.IntOr("attention.sliding_window", 0);
  const int64_t pattern = h.IntOr("attention.sliding_window_pattern", kPattern);
  const double local_theta = h.FloatOr("rope.freq_base_swa", kLocalTheta);
  for (int64_t i = 0; i < static_cast<int64_t>(c.layers.size()); ++i) {
    LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (window == 0 || IsGlobal(i, pattern)) continue;
    layer.window = window;
    layer.rope.theta = local_theta;
    layer.rope.scaling = RopeSpec::Scaling::kNone;  // only global layers are stretched
    layer.rope.factor = 1.0;
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// Which layers are windowed: layer_types, else the pattern.
std::vector<bool> SlidingLayers(HfConfigReader& h, int64_t n_layers) {
  std::vector<bool> sliding(static_cast<size_t>(n_layers), false);
  if (h.Has("layer_types")) {
    const nlohmann::ordered_json& types = h.json()["layer_types"];
    if (!types.is_array() || types.size() != sliding.size()) {
      h.Fail({ErrorCode::kInvalidFile, "config.json: layer_types does not name every layer"});
      return sliding;
    }
    for (size_t i = 0; i < sliding.size(); ++i) sliding[i] = types[i] == "sliding_attention";
    return sliding;
  }
  const int64_t pattern =
      h.Int("sliding_window_pattern", h.Int("_sliding_window_pattern", kPattern));
  for (size_t i = 0; i < sliding.size(); ++i)
    sliding[i] = !IsGlobal(static_cast<int64_t>(i), pattern);
  return sliding;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gemma3",
                               {.hidden_size = 2304,
                                .intermediate_size = 9216,
                                .num_hidden_layers = 26,
                                .num_attention_heads = 8,
                                .num_key_value_heads = 4,
                                .head_dim = 256,
                                .vocab_size = 262208,
                                .max_position_embeddings = 131072,
                                .tie_word_embeddings = true,
                                .act_key = "hidden_activation",
                                .act = "gelu_pytorch_tanh"});
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.attn_scale = 1.0 / std::sqrt(h.Float("query_pre_attn_scalar", 256));
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.attn_softcap = h.Float("attn_logit_softcapping", 0);
  c.logit_softcap = h.Float("final_logit_softcapping", 0);
  const RopeSpec global = ReadHfRope(h, 1000000.0, c.head_dim, "full_attention");
  RopeSpec local;
  local.rotary_dim = c.head_dim;
  local.theta = h.Float("rope_local_base_freq", kLocalTheta);
  if (h.Has("rope_parameters")) local = ReadHfRope(h, local.theta, c.head_dim, "sliding_attention");
  const int64_t window = h.Int("sliding_window", 4096);
  const std::vector<bool> sliding = SlidingLayers(h, static_cast<int64_t>(c.layers.size()));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i] = sliding[i] ? LayerConfig{.window = window, .rope = local}
                             : LayerConfig{.window = 0, .rope = global};
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  const LayerScope w = b.Layer(layer);
  Value h = b.RmsNorm(x, w.Vec("attn_norm", c.dim), c.norm_eps);
  h = parts::GqaAttention(b, c, layer, h, /*qk_norm=*/true);
  h = b.RmsNorm(h, w.Vec("post_attention_norm", c.dim), c.norm_eps);
  x = b.Add(x, h);
  h = b.RmsNorm(x, w.Vec("ffn_norm", c.dim), c.norm_eps);
  h = parts::GatedFfn(b, c, layer, h);
  h = b.RmsNorm(h, w.Vec("post_ffw_norm", c.dim), c.norm_eps);
  return b.Add(x, h);
}

// Hugging Face stores every norm as its difference from one.
constexpr std::array kHfNames = {
    NameRule{"token_embd", "model.embed_tokens.weight"},
    NameRule{"output_norm", "model.norm.weight", Transform::kAddOne},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj.weight"},
    NameRule{"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    NameRule{"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj.weight"},
    NameRule{"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    NameRule{"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj.weight"},
    NameRule{"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    NameRule{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj.weight"},
    NameRule{"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
    NameRule{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm.weight",
             Transform::kAddOne},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm.weight",
             Transform::kAddOne},
    NameRule{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj.weight"},
    NameRule{"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj.weight"},
    NameRule{"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj.weight"},
    NameRule{"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm.weight",
             Transform::kAddOne},
};

}  // namespace

extern const ArchSpec kGemma3 = {
    .name = "gemma3",
    .gguf = "gemma3",
    .hf = "Gemma3ForCausalLM",
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = kHfNames,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::RmsNormHead,
};

}  // namespace lucid
