// GgufHparams of config_readers.h: keys of a GGUF file, and which of them may not be left unread.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/config_readers.h"

namespace lucid {

GgufHparams::GgufHparams(const GgufFile& file, std::string_view prefix)
    : file_(file), prefix_(prefix) {
  for (const TensorEntry& entry : file.tensors()) {
    const std::string_view name = entry.name;
    const size_t end = name.starts_with("blk.") ? name.find('.', 4) : name.npos;
    if (end != name.npos) layer_tensors_.insert(name.substr(end + 1));
  }
}

bool GgufHparams::LayersHave(std::initializer_list<std::string_view> names) const {
  return std::ranges::any_of(names,
                             [&](std::string_view name) { return layer_tensors_.contains(name); });
}

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
double GgufHparams::PositiveOr(std::string_view key, double absent) {
  const double value = FloatOr(key, absent);
  if (value > 0 && std::isfinite(value)) return value;
  Fail({ErrorCode::kInvalidFile, fmt::format("{} is {}, must be positive", Key(key), value)});
  return 1.0;
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

std::vector<float> GgufHparams::Floats(std::string_view tensor, int64_t n) {
  const TensorEntry* entry = file_.Find(tensor);
  if (entry == nullptr) return {};
  if (entry->tensor.rank != 1 || entry->tensor.shape[0] != n) {
    Fail({ErrorCode::kInvalidFile, fmt::format("tensor {} has {} numbers for {} rotated pairs",
                                               tensor, entry->tensor.elements(), n)});
    return {};
  }
  if (entry->tensor.dtype != DType::kF32) {
    Fail({ErrorCode::kInvalidFile, fmt::format("tensor {} is not float32", tensor)});
    return {};
  }
  std::vector<float> values(static_cast<size_t>(entry->tensor.elements()));
  Info(DType::kF32).decode(entry->tensor.data, values.data(), entry->tensor.elements());
  return values;
}

}  // namespace lucid
