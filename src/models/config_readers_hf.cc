// Hugging Face side of config_readers.h.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "models/config_readers.h"

namespace lucid {

using Json = nlohmann::ordered_json;

std::string HfConfigReader::Where(const char* key) const {
  return fmt::format("config.json: {}{}{}", where_, where_.empty() ? "" : ".", key);
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
  Fail({ErrorCode::kUnsupported, fmt::format("{} is {}; only {} is supported", Where(key),
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
    Fail({ErrorCode::kInvalidFile, fmt::format("{} is out of range", Where(key))});
    return absent;
  }
  if (v.is_number_integer()) return v.get<int64_t>();
  Fail({ErrorCode::kInvalidFile, fmt::format("{} is not a whole number", Where(key))});
  return absent;
}

double HfConfigReader::Float(const char* key, double absent) {
  if (!Has(key)) return absent;
  if (config_[key].is_number()) return config_[key].get<double>();
  Fail({ErrorCode::kInvalidFile, fmt::format("{} is not a number", Where(key))});
  return absent;
}

double HfConfigReader::Positive(const char* key, double absent) {
  const double value = Float(key, absent);
  if (value > 0 && std::isfinite(value)) return value;
  Fail({ErrorCode::kInvalidFile, fmt::format("{} is {}, must be positive", Where(key), value)});
  return 1.0;
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
  Fail({ErrorCode::kInvalidFile, fmt::format("{} is not true or false", Where(key))});
  return absent;
}

std::string HfConfigReader::String(const char* key, std::string_view absent) {
  if (!Has(key)) return std::string(absent);
  if (config_[key].is_string()) return config_[key].get<std::string>();
  Fail({ErrorCode::kInvalidFile, fmt::format("{} is not a string", Where(key))});
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
