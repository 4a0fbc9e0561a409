// GGUF side of config_readers.h.
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/config_readers.h"

namespace lucid {

template <typename T>
auto GgufHparams::Keep(Result<T> value, T fallback) {
  if (value) return *value;
  Fail(value.error());
  return fallback;
}

void GgufHparams::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

std::string GgufHparams::Asked(std::string_view key) const {
  asked_.emplace(key);
  return Key(key);
}

namespace {

// Keys of the format (its Python package lists them) that change what a model computes. A reader
// asks for those that its architecture has; in a file of another they mean a model that is not what
// this build takes it for, unless their value says nothing.
struct TellingKey {
  std::string_view key;
  double says_nothing = 0;  // this value and the next
  double nor_does = says_nothing;
  std::string_view like = {};  // nor does what this key says
};
constexpr TellingKey kTellingKeys[] = {
    {"attention.causal", 1},
    {"attention.clamp_kqv"},
    {"attention.indexer.top_k"},
    {"attention.key_length_mla"},
    {"attention.key_length_swa", 0, 0, "attention.key_length"},
    {"attention.kv_lora_rank"},
    {"attention.max_alibi_bias"},
    {"attention.output_scale", 0, 1},
    {"attention.relative_buckets_count"},
    {"attention.scale"},
    {"attention.shared_kv_layers"},
    {"attention.sliding_window"},
    {"attention.sliding_window_pattern"},
    {"attention.temperature_length"},
    {"attention.temperature_scale"},
    {"attention.value_length_mla"},
    {"attention.value_length_swa", 0, 0, "attention.value_length"},
    {"activation_sparsity_scale"},
    {"altup.num_inputs", 0, 1},
    {"attn_logit_softcapping"},
    {"embedding_length_per_layer_input"},
    {"embedding_scale", 0, 1},
    {"expert_count"},
    {"expert_group_scale", 0, 1},
    {"experts_per_group", 0, 1},
    {"final_logit_softcapping"},
    {"full_attention_interval", 0, 1},
    {"interleave_moe_layer_step", 0, 1},
    {"logit_scale", 0, 1},
    {"moe_every_n_layers", 0, 1},
    {"moe_latent_size"},
    {"n_deepstack_layers"},
    {"nextn_predict_layers"},
    {"residual_scale", 0, 1},
    {"rope.dimension_count_swa", 0, 0, "rope.dimension_count"},
    {"rope.dimension_sections"},
    {"rope.freq_base_swa", 0, 0, "rope.freq_base"},
    {"rope.scaling.alpha"},
    {"router_logit_softcapping"},
    {"swiglu_clamp_exp"},
    {"swiglu_clamp_shexp"},
    {"swin_norm"},
    {"use_parallel_residual"},
};

// The number of a scalar; nothing for texts and arrays.
std::optional<double> NumberOf(const GgufValue& value) {
  if (const auto* v = std::get_if<uint64_t>(&value.value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<int64_t>(&value.value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<double>(&value.value)) return *v;
  return std::nullopt;
}

}  // namespace

Status GgufHparams::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  for (const auto& [key, says_nothing, nor_does, like] : kTellingKeys) {
    const GgufValue* value = Get(key);
    if (value == nullptr || asked_.contains(key)) continue;
    const std::optional<double> number = NumberOf(*value);
    if (number && (*number == says_nothing || *number == nor_does)) continue;
    if (const GgufValue* other = like.empty() ? nullptr : Get(like); number && other != nullptr) {
      if (number == NumberOf(*other)) continue;
    }
    return Err(ErrorCode::kUnsupported,
               "{} is {}, and this architecture is supported without it only", Key(key),
               number ? fmt::format("{}", *number) : "a list or text");
  }
  return {};
}

int64_t GgufHparams::Int(std::string_view key) {
  return Keep<int64_t>(file_.GetInt(Asked(key)), 0);
}
double GgufHparams::Float(std::string_view key) {
  return Keep<double>(file_.GetFloat(Asked(key)), 0);
}
int64_t GgufHparams::IntOr(std::string_view key, int64_t absent) {
  return Keep<int64_t>(file_.GetIntOr(Asked(key), absent), absent);
}
double GgufHparams::FloatOr(std::string_view key, double absent) {
  return Keep<double>(file_.GetFloatOr(Asked(key), absent), absent);
}
bool GgufHparams::BoolOr(std::string_view key, bool absent) {
  return Keep<bool>(file_.GetBoolOr(Asked(key), absent), absent);
}
bool GgufHparams::Has(std::string_view key) const {
  return file_.Get(Asked(key)) != nullptr;
}
const GgufValue* GgufHparams::Get(std::string_view key) const {
  return file_.Get(Key(key));
}
std::string GgufHparams::StringOr(std::string_view key, std::string_view absent) {
  if (!Has(key)) return std::string(absent);
  return std::string(Keep<std::string_view>(file_.GetString(Asked(key)), absent));
}

std::vector<float> GgufHparams::Floats(std::string_view tensor) {
  const TensorEntry* entry = file_.Find(tensor);
  if (entry == nullptr) return {};
  if (entry->tensor.dtype != DType::kF32) {
    Fail({ErrorCode::kInvalidFile, fmt::format("tensor {} is not float32", tensor)});
    return {};
  }
  std::vector<float> values(static_cast<size_t>(entry->tensor.elements()));
  Info(DType::kF32).decode(entry->tensor.data, values.data(), entry->tensor.elements());
  return values;
}

namespace {

void ReadYarn(GgufHparams& h, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::kYarn;
  rope.ext_factor = h.FloatOr("rope.scaling.yarn_ext_factor", 1.0);
  rope.beta_fast = h.FloatOr("rope.scaling.yarn_beta_fast", 32.0);
  rope.beta_slow = h.FloatOr("rope.scaling.yarn_beta_slow", 1.0);
  // llama.cpp takes the logarithm's factor by itself, and multiplies it with what the file says.
  rope.attn_factor = YarnAttnFactor(rope.factor) * h.FloatOr("rope.scaling.attn_factor", 1.0) *
                     h.FloatOr("rope.scaling.yarn_attn_factor", 1.0);
}

RopeSpec ReadGgufRope(GgufHparams& h, RopeStyle style, const ModelConfig& c) {
  RopeSpec rope;
  rope.style = style;
  rope.rotary_dim = h.IntOr("rope.dimension_count", c.head_dim);
  rope.theta = h.FloatOr("rope.freq_base", 10000.0);
  rope.factor = h.FloatOr("rope.scaling.factor", h.FloatOr("rope.scale_linear", 1.0));
  rope.original_context =
      h.FloatOr("rope.scaling.original_context_length", static_cast<double>(c.context_length));
  rope.short_factors = h.Floats("rope_factors_short.weight");
  rope.long_factors = h.Floats("rope_factors_long.weight");
  const std::string type =
      h.StringOr("rope.scaling.type", h.Has("rope.scale_linear") ? "linear" : "none");
  if (!rope.long_factors.empty() || !rope.short_factors.empty()) {
    // Their files need not say the type: the tensors do.
    rope.scaling = RopeSpec::Scaling::kLongRope;
    rope.attn_factor = h.FloatOr("rope.scaling.attn_factor", 1.0);
  } else if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::kLinear;
  } else if (type == "yarn") {
    ReadYarn(h, rope);
  } else if (type != "none") {
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("rope scaling '{}' is not supported; supported: none, linear, yarn, "
                        "longrope with its tensors",
                        type)});
  }
  return rope;
}

}  // namespace

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
  c.norm_bias = has("output_norm.bias");
  c.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  c.attn_out_bias = has("blk.0.attn_output.bias");
  c.ffn_bias = has("blk.0.ffn_down.bias");
  c.rope_freq_factors = has("rope_freqs.weight");
  c.clip_qkv = h.FloatOr("attention.clamp_kqv", 0);
  SetLayers(c, ReadGgufRope(h, style, c));
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

}  // namespace lucid
