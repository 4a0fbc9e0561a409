// Cohere Command-R7B and Command-A: Command-R with windows in three of four layers, which rotate;
// the fourth sees all positions and knows none.
#include <vector>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr int64_t kPattern = 4;

// Layers with a window rotate.
void SetWindows(ModelConfig& c, int64_t window, const std::vector<bool>& sliding) {
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].window = sliding[i] ? window : 0;
    c.layers[i].use_rope = sliding[i];
  }
}

// layer_types, else the pattern: layer i is global when (i + 1) is a multiple of it.
std::vector<bool> SlidingLayers(HfConfigReader& h, const ModelConfig& c) {
  const int64_t pattern =
      h.Int(h.Pick({"sliding_window_pattern", "_sliding_window_pattern"}), kPattern);
  if (const auto named = ReadHfSlidingLayers(h, c)) return *named;
  std::vector<bool> sliding(c.layers.size());
  for (size_t i = 0; i < sliding.size(); ++i) {
    sliding[i] = pattern <= 0 || (static_cast<int64_t>(i) + 1) % pattern != 0;
  }
  return sliding;
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "cohere2");
  ModelConfig c = ReadGgufCommon(h, "cohere2", RopeStyle::kInterleaved, NormKind::kLayer);
  c.logit_scale = h.FloatOr("logit_scale", 1.0);
  SetWindows(c, h.Int("attention.sliding_window"), ReadGgufSlidingLayers(h, c, kPattern));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  keys.Float("logit_scale", c.logit_scale);
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "cohere2",
                               {.hidden_size = 8192,
                                .intermediate_size = 22528,
                                .num_hidden_layers = 40,
                                .num_attention_heads = 64,
                                .vocab_size = 256000,
                                .max_position_embeddings = 8192,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_eps",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true});
  c.logit_scale = h.Float("logit_scale", 0.0625);
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  SetLayers(c, ReadHfRope(h, c, {.style = RopeStyle::kInterleaved}));
  SetWindows(c, h.Int("sliding_window", 4096), SlidingLayers(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::ParallelBlock(b, c, layer, x, parts::GatedFfn);
}

}  // namespace

extern const ArchSpec kCohere2 = {
    .name = "cohere2",
    .gguf = "cohere2",
    .hf = {"Cohere2ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
