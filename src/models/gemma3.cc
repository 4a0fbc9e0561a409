// Gemma 3 (text): norms before and after each half of the block, q and k norms, five windowed
// layers to each global one, another rope base in the windowed layers, embedding times sqrt(dim).
#include <cmath>

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
  c.qk_norm = QkNorm::kPerHead;
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.logit_softcap = h.FloatOr("final_logit_softcapping", 0);
  // The file does not say query_pre_attn_scalar; of the published sizes only 27B (62 layers) has
  // another than head_dim.
  if (c.n_layers == 62 && c.n_heads > 0)
    c.attn_scale = 1.0 / std::sqrt(static_cast<double>(c.dim) / static_cast<double>(c.n_heads));
  const int64_t window = h.IntOr("attention.sliding_window", 0);
  const std::vector<bool> sliding = ReadGgufSlidingLayers(h, c, kPattern);
  const double local_theta = h.FloatOr("rope.freq_base_swa", kLocalTheta);
  for (int64_t i = 0; i < static_cast<int64_t>(c.layers.size()); ++i) {
    LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (window == 0 || !sliding[static_cast<size_t>(i)]) continue;
    layer.window = window;
    layer.rope.theta = local_theta;
    layer.rope.scaling = RopeSpec::Scaling::kNone;  // only global layers are stretched
    layer.rope.factor = 1.0;
    layer.rope.attn_factor = 1.0;
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// Which layers are windowed: layer_types, else the pattern.
std::vector<bool> SlidingLayers(HfConfigReader& h, const ModelConfig& c) {
  if (const auto named = ReadHfSlidingLayers(h, c)) return *named;
  const int64_t pattern =
      h.Int(h.Pick({"sliding_window_pattern", "_sliding_window_pattern"}), kPattern);
  std::vector<bool> sliding(c.layers.size());
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
  c.attn_scale = 1.0 / std::sqrt(h.Positive("query_pre_attn_scalar", 256));
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.attn_softcap = h.Float("attn_logit_softcapping", 0);
  c.logit_softcap = h.Float("final_logit_softcapping", 0);
  c.qk_norm = QkNorm::kPerHead;
  h.Only("use_bidirectional_attention", false);
  const RopeSpec global = ReadHfRope(h, c, {.theta = 1000000.0, .group = "full_attention"});
  RopeSpec local;
  local.rotary_dim = c.head_dim;
  local.theta = h.Float("rope_local_base_freq", kLocalTheta);
  if (h.Has("rope_parameters")) {
    local = ReadHfRope(h, c, {.theta = local.theta, .group = "sliding_attention"});
  }
  const int64_t window = h.Int("sliding_window", 4096);
  const std::vector<bool> sliding = SlidingLayers(h, c);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i] = sliding[i] ? LayerConfig{.window = window, .rope = local}
                             : LayerConfig{.window = 0, .rope = global};
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::SandwichBlock(b, c, layer, x, parts::GatedFfn);
}

}  // namespace

extern const ArchSpec kGemma3 = {
    .name = "gemma3",
    .gguf = "gemma3",
    .hf = {"Gemma3ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kGemmaNorms, names::kEnds, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
