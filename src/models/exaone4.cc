// EXAONE 4: norms only behind each half of the block and over every head of q and k; where there
// are windows, the global layers know no positions.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr int64_t kPattern = 4;  // every fourth layer is global

// `sliding`: by layer; none where every layer is global, and then all rotate.
void SetWindows(ModelConfig& c, int64_t window, const std::vector<bool>& sliding) {
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].window = sliding[i] ? window : 0;
    c.layers[i].use_rope = window == 0 || sliding[i];
  }
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "exaone4");
  ModelConfig c = ReadGgufCommon(h, "exaone4", RopeStyle::kHalfSplit);
  c.qk_norm = QkNorm::kPerHead;
  SetWindows(c, h.IntOr("attention.sliding_window", 0), ReadGgufSlidingLayers(h, c, kPattern));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// llama.cpp rotates every layer and sees all positions unless there are as many layers as in the
// model that has windows.
constexpr int64_t kLayersWithWindows = 64;

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  const bool alike =
      std::ranges::all_of(c.layers, [](const LayerConfig& layer) { return layer.use_rope; });
  if (!alike && c.n_layers != kLayersWithWindows) {
    keys.Cannot("some layers do not rotate, unless there are 64 layers");
  }
}

// layer_types, or sliding_window_pattern: "LLLG" by layer, or n for a global layer in every n.
std::vector<bool> SlidingLayers(HfConfigReader& h, const ModelConfig& c) {
  if (const auto named = ReadHfSlidingLayers(h, c)) return *named;
  std::vector<bool> sliding(c.layers.size());
  if (h.Has("sliding_window_pattern") && h.json()["sliding_window_pattern"].is_string()) {
    const std::string pattern = h.String("sliding_window_pattern", "");
    if (pattern.find_first_not_of("LG") != std::string::npos || pattern.empty()) {
      h.Fail({ErrorCode::kInvalidFile,
              "config.json: sliding_window_pattern is not of L and G, which are the supported "
              "layers"});
      return sliding;
    }
    for (size_t i = 0; i < sliding.size(); ++i) sliding[i] = pattern[i % pattern.size()] == 'L';
    return sliding;
  }
  const int64_t pattern = h.Int("sliding_window_pattern", kPattern);
  for (size_t i = 0; i < sliding.size(); ++i) {
    sliding[i] = pattern > 0 && (static_cast<int64_t>(i) + 1) % pattern != 0;
  }
  return sliding;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "exaone4",
                               {.intermediate_size = 16384,
                                .num_key_value_heads = 32,
                                .vocab_size = 102400,
                                .norm_eps = 1e-5});
  c.qk_norm = QkNorm::kPerHead;
  SetLayers(c, ReadHfRope(h, c));
  SetWindows(c, h.IntOrNull("sliding_window", 4096), SlidingLayers(h, c));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::PostNormBlock(b, c, layer, x, parts::GatedFfn);
}

}  // namespace

extern const ArchSpec kExaone4 = {
    .name = "exaone4",
    .gguf = "exaone4",
    .hf = {"Exaone4ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPostNorms, names::kAttention, names::kQkNorms, names::kFfn},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
