// GGUF side of config_readers.h, but for rotations (config_rope.cc).
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "models/config_readers.h"

namespace lucid {

ModelConfig ReadGgufCommon(GgufHparams& h, std::string_view arch, RopeStyle style, NormKind norm) {
  ModelConfig c;
  c.arch = arch;
  c.n_layers = h.Int("block_count");
  c.dim = h.Int("embedding_length");
  c.ffn_dim = h.Int("feed_forward_length");
  c.n_heads = h.Int("attention.head_count");
  c.n_kv_heads = h.IntOr("attention.head_count_kv", c.n_heads);
  c.head_dim = h.IntOr("attention.key_length", c.n_heads > 0 ? c.dim / c.n_heads : 0);
  const bool latent = h.Get("attention.kv_lora_rank") != nullptr;
  if (!latent && h.IntOr("attention.value_length", c.head_dim) != c.head_dim) {
    h.Fail({ErrorCode::kUnsupported, "attention.key_length and attention.value_length differ"});
  }
  c.context_length = h.Int("context_length");
  c.norm = norm;
  c.norm_eps = h.Float(norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                              : "attention.layer_norm_epsilon");
  c.attn_scale = c.head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(c.head_dim)) : 0;

  const GgufFile& file = h.file();
  const auto has = [&](const char* name) { return file.Find(name) != nullptr; };
  if (const TensorEntry* embedding = file.Find("token_embd.weight"); embedding == nullptr) {
    h.Fail({ErrorCode::kInvalidFile, "tensor token_embd.weight is missing"});
  } else {
    c.vocab_size = embedding->tensor.rows();
  }
  if (const TensorEntry* positions = file.Find("position_embd.weight"); positions != nullptr) {
    c.position_rows = positions->tensor.rows();
  }
  c.tied_embeddings = !has("output.weight");
  c.output_bias = has("output.bias");
  c.norm_bias = has("output_norm.bias") || h.LayersHave({"attn_norm.bias", "ffn_norm.bias"});
  c.qkv_bias = h.LayersHave({"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"});
  c.attn_out_bias = h.LayersHave({"attn_output.bias"});
  c.ffn_bias = h.LayersHave({"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"});
  c.clip_qkv = h.FloatOr("attention.clamp_kqv", 0);
  SetLayers(c, ReadGgufRope(h, c, style));
  return c;
}

std::vector<bool> ReadGgufSlidingLayers(GgufHparams& h, const ModelConfig& c, int64_t absent) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> sliding(c.layers.size());
  const GgufValue* value = h.Has(kKey) ? h.Get(kKey) : nullptr;
  if (value != nullptr && value->is_array()) {
    const auto* list = std::get_if<std::vector<uint64_t>>(&value->value);
    if (list == nullptr || list->size() != sliding.size()) {
      h.Fail({ErrorCode::kInvalidFile, fmt::format("{} does not name every layer", kKey)});
      return sliding;
    }
    for (size_t i = 0; i < sliding.size(); ++i) sliding[i] = (*list)[i] != 0;
    return sliding;
  }
  const int64_t pattern = h.IntOr(kKey, absent);
  for (size_t i = 0; i < sliding.size(); ++i) {
    sliding[i] = pattern <= 0 || (static_cast<int64_t>(i) + 1) % pattern != 0;
  }
  return sliding;
}

void ReadGgufWindows(GgufHparams& h, ModelConfig& c) {
  const int64_t window = h.IntOr("attention.sliding_window", 0);
  const std::vector<bool> sliding = ReadGgufSlidingLayers(h, c, /*absent=*/0);
  for (size_t i = 0; i < c.layers.size(); ++i) c.layers[i].window = sliding[i] ? window : 0;
}

void SetLayers(ModelConfig& c, const RopeSpec& rope, int64_t window) {
  if (c.n_layers <= 0 || c.n_layers > 4096) return;  // ValidateConfig says so
  c.layers.assign(static_cast<size_t>(c.n_layers), LayerConfig{.window = window, .rope = rope});
}

void SetNoRope(ModelConfig& c) {
  for (LayerConfig& layer : c.layers) layer.use_rope = false;
}

}  // namespace lucid
