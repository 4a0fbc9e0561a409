#include "models/config_readers.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace lucid {

using Json = nlohmann::ordered_json;

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
bool GgufHparams::Has(std::string_view key) const {
  return file_.Get(Key(key)) != nullptr;
}
std::string GgufHparams::StringOr(std::string_view key, std::string_view absent) {
  if (!Has(key)) return std::string(absent);
  return std::string(Keep<std::string_view>(file_.GetString(Key(key)), absent));
}

namespace {

RopeSpec ReadGgufRope(GgufHparams& h, RopeStyle style, int64_t head_dim) {
  RopeSpec rope;
  rope.style = style;
  rope.rotary_dim = h.IntOr("rope.dimension_count", head_dim);
  rope.theta = h.FloatOr("rope.freq_base", 10000.0);
  const std::string type =
      h.StringOr("rope.scaling.type", h.Has("rope.scale_linear") ? "linear" : "none");
  if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::kLinear;
    rope.factor = h.FloatOr("rope.scaling.factor", h.FloatOr("rope.scale_linear", 1.0));
  } else if (type != "none") {
    h.Fail({ErrorCode::kUnsupported,
            "rope scaling '" + type + "' is not supported yet; supported: none, linear"});
  }
  return rope;
}

}  // namespace

ModelConfig ReadGgufCommon(GgufHparams& h, std::string_view arch, RopeStyle style) {
  ModelConfig c;
  c.arch = arch;
  c.n_layers = h.Int("block_count");
  c.dim = h.Int("embedding_length");
  c.ffn_dim = h.Int("feed_forward_length");
  c.n_heads = h.Int("attention.head_count");
  c.n_kv_heads = h.IntOr("attention.head_count_kv", c.n_heads);
  c.head_dim = h.IntOr("attention.key_length", c.n_heads > 0 ? c.dim / c.n_heads : 0);
  if (h.IntOr("attention.value_length", c.head_dim) != c.head_dim) {
    h.Fail({ErrorCode::kUnsupported, "attention.key_length and attention.value_length differ"});
  }
  c.context_length = h.Int("context_length");
  c.norm_eps = h.Float("attention.layer_norm_rms_epsilon");
  c.attn_scale = c.head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(c.head_dim)) : 0;

  const GgufFile& file = h.file();
  const auto has = [&](const char* name) { return file.Find(name) != nullptr; };
  if (const TensorEntry* embedding = file.Find("token_embd.weight"); embedding == nullptr) {
    h.Fail({ErrorCode::kInvalidFile, "tensor token_embd.weight is missing"});
  } else {
    c.vocab_size = embedding->tensor.rows();
  }
  c.tied_embeddings = !has("output.weight");
  c.qkv_bias = has("blk.0.attn_q.bias");
  c.attn_out_bias = has("blk.0.attn_output.bias");
  c.ffn_bias = has("blk.0.ffn_gate.bias");
  c.rope_freq_factors = has("rope_freqs.weight");

  const RopeSpec rope = ReadGgufRope(h, style, c.head_dim);
  if (c.n_layers > 0 && c.n_layers <= 4096) {
    c.layers.assign(static_cast<size_t>(c.n_layers), LayerConfig{.window = 0, .rope = rope});
  }
  return c;
}

void HfConfigReader::Fail(Error error) {
  if (!error_) error_ = std::move(error);
}

Status HfConfigReader::status() const {
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

bool HfConfigReader::Has(const char* key) const {
  const auto it = config_.find(key);
  return it != config_.end() && !it->is_null();
}

int64_t HfConfigReader::Int(const char* key, int64_t absent) {
  if (!Has(key)) return absent;
  const Json& v = config_[key];
  if (v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{1} << 62) {
    Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is out of range", key)});
    return absent;
  }
  if (v.is_number_integer()) return v.get<int64_t>();
  Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not a whole number", key)});
  return absent;
}

double HfConfigReader::Float(const char* key, double absent) {
  if (!Has(key)) return absent;
  if (config_[key].is_number()) return config_[key].get<double>();
  Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not a number", key)});
  return absent;
}

bool HfConfigReader::Bool(const char* key, bool absent) {
  if (!Has(key)) return absent;
  if (config_[key].is_boolean()) return config_[key].get<bool>();
  Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not true or false", key)});
  return absent;
}

std::string HfConfigReader::String(const char* key, std::string_view absent) {
  if (!Has(key)) return std::string(absent);
  if (config_[key].is_string()) return config_[key].get<std::string>();
  Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not a string", key)});
  return std::string(absent);
}

namespace {

Activation ReadHfActivation(HfConfigReader& h, const char* key, std::string_view absent) {
  const std::string name = h.String(key, absent);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  h.Fail(
      {ErrorCode::kUnsupported, fmt::format("config.json: {} '{}' is not supported", key, name)});
  return Activation::kSilu;
}

}  // namespace

ModelConfig ReadHfCommon(HfConfigReader& h, std::string_view arch, const HfDefaults& d) {
  ModelConfig c;
  c.arch = arch;
  c.n_layers = h.Int("num_hidden_layers", d.num_hidden_layers);
  c.dim = h.Int("hidden_size", d.hidden_size);
  c.ffn_dim = h.Int("intermediate_size", d.intermediate_size);
  c.n_heads = h.Int("num_attention_heads", d.num_attention_heads);
  c.n_kv_heads =
      h.Int("num_key_value_heads", d.num_key_value_heads > 0 ? d.num_key_value_heads : c.n_heads);
  c.head_dim =
      h.Int("head_dim", d.head_dim > 0 ? d.head_dim : (c.n_heads > 0 ? c.dim / c.n_heads : 0));
  c.vocab_size = h.Int("vocab_size", d.vocab_size);
  c.context_length = h.Int("max_position_embeddings", d.max_position_embeddings);
  c.norm_eps = h.Float("rms_norm_eps", d.rms_norm_eps);
  c.attn_scale = c.head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(c.head_dim)) : 0;
  c.tied_embeddings = h.Bool("tie_word_embeddings", d.tie_word_embeddings);
  c.act = ReadHfActivation(h, d.act_key, d.act);
  if (c.n_layers > 0 && c.n_layers <= 4096) c.layers.resize(static_cast<size_t>(c.n_layers));
  return c;
}

namespace {

void ReadHfScaling(HfConfigReader& h, const Json& scaling, RopeSpec& rope) {
  HfConfigReader s(scaling);
  const std::string type = s.String("rope_type", s.String("type", "default"));
  if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::kLinear;
    rope.factor = s.Float("factor", 1.0);
  } else if (type == "llama3") {
    rope.scaling = RopeSpec::Scaling::kLlama3;
    rope.factor = s.Float("factor", 8.0);
    rope.low_freq_factor = s.Float("low_freq_factor", 1.0);
    rope.high_freq_factor = s.Float("high_freq_factor", 4.0);
    rope.original_context = s.Float("original_max_position_embeddings", 8192);
  } else if (type != "default") {
    h.Fail({ErrorCode::kUnsupported, fmt::format("config.json: rope scaling '{}' is not supported "
                                                 "yet; supported: default, linear, llama3",
                                                 type)});
  }
  if (const Status status = s.status(); !status) h.Fail(status.error());
}

}  // namespace

RopeSpec ReadHfRope(HfConfigReader& h, double default_theta, int64_t head_dim, const char* group) {
  RopeSpec rope;
  rope.style = RopeStyle::kHalfSplit;
  rope.rotary_dim = head_dim;
  rope.theta = h.Float("rope_theta", default_theta);
  if (h.Has("rope_parameters")) {
    const Json* parameters = &h.json()["rope_parameters"];
    if (group != nullptr && parameters->is_object() && parameters->contains(group))
      parameters = &(*parameters)[group];
    if (!parameters->is_object()) {
      h.Fail({ErrorCode::kInvalidFile, "config.json: rope_parameters is not an object"});
      return rope;
    }
    HfConfigReader p(*parameters);
    rope.theta = p.Float("rope_theta", rope.theta);
    if (const Status status = p.status(); !status) h.Fail(status.error());
    ReadHfScaling(h, *parameters, rope);
  } else if (h.Has("rope_scaling")) {
    const Json& scaling = h.json()["rope_scaling"];
    if (!scaling.is_object()) {
      h.Fail({ErrorCode::kInvalidFile, "config.json: rope_scaling is not an object"});
      return rope;
    }
    ReadHfScaling(h, scaling, rope);
  }
  return rope;
}

}  // namespace lucid
