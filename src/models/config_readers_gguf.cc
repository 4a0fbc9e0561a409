// GGUF side of config_readers.h.
#include <cmath>
#include <utility>

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

Status GgufHparams::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

int64_t GgufHparams::Int(std::string_view key) {
  return Keep<int64_t>(file_.GetInt(Key(key)), 0);
}
double GgufHparams::Float(std::string_view key) {
  return Keep<double>(file_.GetFloat(Key(key)), 0);
}
int64_t GgufHparams::IntOr(std::string_view key, int64_t absent) {
  return Keep<int64_t>(file_.GetIntOr(Key(key), absent), absent);
}
double GgufHparams::FloatOr(std::string_view key, double absent) {
  return Keep<double>(file_.GetFloatOr(Key(key), absent), absent);
}
bool GgufHparams::BoolOr(std::string_view key, bool absent) {
  return Keep<bool>(file_.GetBoolOr(Key(key), absent), absent);
}
bool GgufHparams::Has(std::string_view key) const {
  return file_.Get(Key(key)) != nullptr;
}
std::string GgufHparams::StringOr(std::string_view key, std::string_view absent) {
  if (!Has(key)) return std::string(absent);
  return std::string(Keep<std::string_view>(file_.GetString(Key(key)), absent));
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
  const bool latent = h.Has("attention.kv_lora_rank");
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

void SetLayers(ModelConfig& c, const RopeSpec& rope, int64_t window) {
  if (c.n_layers <= 0 || c.n_layers > 4096) return;  // ValidateConfig says so
  c.layers.assign(static_cast<size_t>(c.n_layers), LayerConfig{.window = window, .rope = rope});
}

}  // namespace lucid
