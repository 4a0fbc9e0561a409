// Hugging Face side of config_readers.h.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "models/config_readers.h"

namespace lucid {

using Json = nlohmann::ordered_json;

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

void HfConfigReader::Only(const char* key, bool value) {
  OnlyJson(key, value);
}
void HfConfigReader::Only(const char* key, double value) {
  OnlyJson(key, value);
}
void HfConfigReader::Only(const char* key, const char* value) {
  OnlyJson(key, value);
}

void HfConfigReader::OnlyJson(const char* key, const Json& value) {
  if (!Has(key) || config_[key] == value) return;
  Fail({ErrorCode::kUnsupported, fmt::format("config.json: {} is {}; only {} is supported", key,
                                             config_[key].dump(), value.dump())});
}

const char* HfConfigReader::Pick(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (Has(name)) return name;
  }
  return *names.begin();
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

int64_t HfConfigReader::IntOrNull(const char* key, int64_t absent) {
  return Int(key, config_.contains(key) ? 0 : absent);
}

double HfConfigReader::FloatOrNull(const char* key, double absent) {
  return Float(key, config_.contains(key) ? 0 : absent);
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

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGeluErf},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"quick_gelu", Activation::kGeluQuick},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kReluSquared},
};

Activation ReadHfActivation(HfConfigReader& h, const char* key, std::string_view absent) {
  const std::string name = h.String(key, absent);
  std::string known;
  for (const auto& [theirs, ours] : kActivations) {
    if (name == theirs) return ours;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", theirs);
  }
  h.Fail({ErrorCode::kUnsupported,
          fmt::format("config.json: {} '{}' is not supported; supported: {}", key, name, known)});
  return Activation::kSilu;
}

}  // namespace

ModelConfig ReadHfCommon(HfConfigReader& h, std::string_view arch, const HfDefaults& d) {
  ModelConfig c;
  c.arch = arch;
  c.n_layers = h.Int(h.Pick({"num_hidden_layers", "n_layer", "n_layers"}), d.num_hidden_layers);
  c.dim = h.Int(h.Pick({"hidden_size", "n_embd", "d_model", "n_embed"}), d.hidden_size);
  c.ffn_dim = h.Int(h.Pick({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}),
                    d.intermediate_size > 0 ? d.intermediate_size : 4 * c.dim);
  c.n_heads = h.Int(h.Pick({"num_attention_heads", "n_head", "n_heads"}), d.num_attention_heads);
  c.n_kv_heads = h.Int(h.Pick({"num_key_value_heads", "num_kv_heads", "n_head_kv"}),
                       d.num_key_value_heads > 0 && !h.json().contains("num_key_value_heads")
                           ? d.num_key_value_heads
                           : c.n_heads);
  c.head_dim =
      h.Int("head_dim", d.head_dim > 0 ? d.head_dim : (c.n_heads > 0 ? c.dim / c.n_heads : 0));
  c.vocab_size = h.Int("vocab_size", d.vocab_size);
  c.context_length =
      h.Int(h.Pick({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}),
            d.max_position_embeddings);
  c.norm = d.norm;
  c.norm_eps = h.Float(d.eps_key, d.norm_eps);
  c.attn_scale = c.head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(c.head_dim)) : 0;
  c.tied_embeddings = h.Bool("tie_word_embeddings", d.tie_word_embeddings);
  c.act = ReadHfActivation(h, d.act_key, d.act);
  if (!d.reads_quantization && h.Has("quantization_config")) {
    const Json& q = h.json()["quantization_config"];
    const bool named = q.is_object() && q.contains("quant_method");
    h.Fail(
        {ErrorCode::kUnsupported,
         fmt::format("config.json: quantization_config with quant_method {} is not supported for "
                     "this architecture; only weights of plain types are",
                     named ? q["quant_method"].dump() : "null")});
  }
  if (c.n_layers > 0 && c.n_layers <= 4096) c.layers.resize(static_cast<size_t>(c.n_layers));
  return c;
}

namespace {

std::vector<float> ReadFactors(HfConfigReader& s, const char* key) {
  std::vector<float> factors;
  if (s.Has(key) && s.json()[key].is_array()) {
    for (const Json& factor : s.json()[key]) {
      if (factor.is_number()) factors.push_back(factor.get<float>());
    }
    if (factors.size() == s.json()[key].size()) return factors;
  }
  s.Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not a list of numbers", key)});
  return {};
}

void ReadYarn(HfConfigReader& s, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::kYarn;
  rope.beta_fast = s.Float("beta_fast", 32.0);
  rope.beta_slow = s.Float("beta_slow", 1.0);
  rope.truncate = s.Bool("truncate", true);
  double factor = YarnAttnFactor(rope.factor);
  // DeepSeek's dialect; one of the two alone changes nothing.
  const double mscale = s.Float("mscale", 0);
  const double mscale_all = s.Float("mscale_all_dim", 0);
  if (mscale != 0 && mscale_all != 0) {
    factor = YarnAttnFactor(rope.factor, mscale) / YarnAttnFactor(rope.factor, mscale_all);
  }
  rope.attn_factor = s.Float("attention_factor", factor);
}

void ReadLongRope(HfConfigReader& s, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::kLongRope;
  rope.short_factors = ReadFactors(s, "short_factor");
  rope.long_factors = ReadFactors(s, "long_factor");
  double factor = 1.0;
  if (rope.factor > 1.0) {
    factor = std::sqrt(1.0 + std::log(rope.factor) / std::log(rope.original_context));
  }
  rope.attn_factor = s.Float("attention_factor", factor);
}

void ReadScaling(HfConfigReader& h, const ModelConfig& c, const Json& scaling, RopeSpec& rope) {
  HfConfigReader s(scaling);
  const std::string type = s.String("rope_type", s.String("type", "default"));
  const auto trained = static_cast<double>(c.context_length);
  rope.original_context = s.Float("original_max_position_embeddings",
                                  h.Float("original_max_position_embeddings", trained));
  rope.factor = s.Float("factor", 1.0);
  if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::kLinear;
  } else if (type == "dynamic") {
    rope.scaling = RopeSpec::Scaling::kDynamic;
    if (s.Has("alpha")) {
      s.Fail({ErrorCode::kUnsupported,
              "config.json: rope scaling 'dynamic' with an alpha is not "
              "supported"});
    }
  } else if (type == "yarn") {
    rope.factor = s.Float("factor", trained / rope.original_context);
    ReadYarn(s, rope);
  } else if (type == "llama3") {
    rope.scaling = RopeSpec::Scaling::kLlama3;
    rope.factor = s.Float("factor", 8.0);
    rope.low_freq_factor = s.Float("low_freq_factor", 1.0);
    rope.high_freq_factor = s.Float("high_freq_factor", 4.0);
  } else if (type == "longrope" || type == "su") {
    rope.factor = s.Float("factor", trained / rope.original_context);
    ReadLongRope(s, rope);
  } else if (type != "default") {
    s.Fail({ErrorCode::kUnsupported,
            fmt::format("config.json: rope scaling '{}' is not supported; supported: default, "
                        "linear, dynamic, yarn, llama3, longrope",
                        type)});
  }
  if (const Status status = s.status(); !status) h.Fail(status.error());
}

// The rotated part of a head, under the names that it has had.
int64_t RotaryDim(HfConfigReader& h, const ModelConfig& c, double absent) {
  if (h.Has("rotary_dim")) return h.Int("rotary_dim", 0);
  const double part = h.Float(h.Pick({"partial_rotary_factor", "rotary_pct"}), absent);
  return part >= 0 && part <= 1 ? static_cast<int64_t>(static_cast<double>(c.head_dim) * part) : -1;
}

}  // namespace

RopeSpec ReadHfRope(HfConfigReader& h, const ModelConfig& c, const HfRopeDefaults& d) {
  RopeSpec rope;
  rope.style = d.style;
  rope.theta = h.Float(h.Pick({"rope_theta", "rotary_emb_base"}), d.theta);
  rope.rotary_dim = RotaryDim(h, c, d.partial);
  const char* key = h.Pick({"rope_parameters", "rope_scaling"});
  if (!h.Has(key)) return rope;
  const Json* parameters = &h.json()[key];
  if (d.group != nullptr && parameters->is_object() && parameters->contains(d.group)) {
    parameters = &(*parameters)[d.group];
  }
  if (!parameters->is_object()) {
    h.Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not an object", key)});
    return rope;
  }
  for (const auto& [name, member] : parameters->items()) {
    if (!member.is_object()) continue;
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("config.json: {} has {} for some layers, which is not supported for this "
                        "architecture; only one for all layers is",
                        key, name)});
  }
  HfConfigReader p(*parameters);
  rope.theta = p.Float("rope_theta", rope.theta);
  if (p.Has("partial_rotary_factor")) rope.rotary_dim = RotaryDim(p, c, d.partial);
  if (const Status status = p.status(); !status) h.Fail(status.error());
  ReadScaling(h, c, *parameters, rope);
  return rope;
}

std::optional<std::vector<bool>> ReadHfSlidingLayers(HfConfigReader& h, const ModelConfig& c) {
  if (!h.Has("layer_types")) return std::nullopt;
  const Json& types = h.json()["layer_types"];
  std::vector<bool> sliding(c.layers.size(), false);
  if (!types.is_array() || types.size() != sliding.size()) {
    h.Fail({ErrorCode::kInvalidFile, "config.json: layer_types does not name every layer"});
    return sliding;
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    sliding[i] = types[i] == "sliding_attention";
    if (!sliding[i] && types[i] != "full_attention") {
      h.Fail({ErrorCode::kUnsupported,
              fmt::format("config.json: layer type {} is not supported; supported: "
                          "full_attention, sliding_attention",
                          types[i].dump())});
    }
  }
  return sliding;
}

void SetQwenWindows(HfConfigReader& h, ModelConfig& c) {
  if (!h.Bool("use_sliding_window", false)) return;
  const int64_t window = h.Int("sliding_window", 4096);
  const int64_t first = h.Int("max_window_layers", 28);
  const std::optional<std::vector<bool>> sliding = ReadHfSlidingLayers(h, c);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool here = sliding ? (*sliding)[i] : static_cast<int64_t>(i) >= first;
    c.layers[i].window = here ? window : 0;
  }
}

}  // namespace lucid
