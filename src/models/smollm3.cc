// SmolLM3: a Llama block; every fourth layer knows no positions.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr int64_t kInterval = 4;

void SetRopeLayers(ModelConfig& c, int64_t interval) {
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].use_rope = interval <= 0 || (static_cast<int64_t>(i) + 1) % interval != 0;
  }
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "smollm3");
  // The converter permutes q and k as in Llama files.
  ModelConfig c = ReadGgufCommon(h, "smollm3", RopeStyle::kInterleaved);
  SetRopeLayers(c, kInterval);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// no_rope_layers: 1 where a layer rotates, 0 where it does not.
void ReadNoRopeLayers(HfConfigReader& h, ModelConfig& c) {
  SetRopeLayers(c, h.Int("no_rope_layer_interval", kInterval));
  if (!h.Has("no_rope_layers")) return;
  const nlohmann::ordered_json& list = h.json()["no_rope_layers"];
  if (!list.is_array() || list.size() != c.layers.size()) {
    h.Fail({ErrorCode::kInvalidFile, "config.json: no_rope_layers does not name every layer"});
    return;
  }
  for (size_t i = 0; i < c.layers.size(); ++i) c.layers[i].use_rope = list[i] == 1;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "smollm3",
                               {.hidden_size = 2048,
                                .num_hidden_layers = 36,
                                .num_attention_heads = 16,
                                .num_key_value_heads = 4,
                                .vocab_size = 128256,
                                .max_position_embeddings = 32768,
                                .tie_word_embeddings = true});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.ffn_bias = h.Bool("mlp_bias", false);
  h.Only("use_sliding_window", false);
  if (const auto sliding = ReadHfSlidingLayers(h, c);
      sliding && std::find(sliding->begin(), sliding->end(), true) != sliding->end()) {
    h.Fail({ErrorCode::kUnsupported,
            "config.json: layer_types names sliding_attention; only full_attention is supported"});
  }
  SetLayers(c, ReadHfRope(h, c, {.theta = 2000000.0}));
  ReadNoRopeLayers(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kSmollm3 = {
    .name = "smollm3",
    .gguf = "smollm3",
    .hf = {"SmolLM3ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = parts::GatedBlock,
    .head = parts::Head,
};

}  // namespace lucid
