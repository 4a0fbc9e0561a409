#include "cli/show_report.h"

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "engine/describe.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "format/safetensors.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

// One hyperparameter: the key under the architecture's prefix in GGUF, and the keys it has in
// config.json files.
struct Convention {
  const char* name;
  const char* gguf;
  std::initializer_list<const char*> hf;
};
const Convention kConventions[] = {
    {"n_layers", "block_count", {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
    {"dim", "embedding_length", {"hidden_size", "n_embd", "d_model"}},
    {"n_heads", "attention.head_count", {"num_attention_heads", "n_head", "n_heads"}},
    {"n_kv_heads", "attention.head_count_kv", {"num_key_value_heads", "num_kv_heads", "n_head_kv"}},
    {"head_dim", "attention.key_length", {"head_dim"}},
    {"ffn_dim", "feed_forward_length", {"intermediate_size", "n_inner", "ffn_dim"}},
    {"vocab_size", "vocab_size", {"vocab_size"}},
    {"context_length",
     "context_length",
     {"max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"}},
    {"norm_eps",
     "attention.layer_norm_rms_epsilon",
     {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"}},
    {"norm_eps", "attention.layer_norm_epsilon", {}},
    {"rope_theta", "rope.freq_base", {"rope_theta"}},
    {"rope_dim", "rope.dimension_count", {}},
    {"rope_scaling", "rope.scaling.type", {"rope_scaling", "rope_parameters"}},
    {"rope_scaling_factor", "rope.scaling.factor", {}},
    {"sliding_window", "attention.sliding_window", {"sliding_window"}},
    {"n_experts", "expert_count", {"num_local_experts", "num_experts", "n_routed_experts"}},
    {"n_experts_used", "expert_used_count", {"num_experts_per_tok"}},
};

// The shortest decimal that reads back as the same float32: 1e-05, not 9.999999747378752e-06.
double Shortest(double float32) {
  return std::strtod(fmt::format("{}", static_cast<float>(float32)).c_str(), nullptr);
}

Json ToJson(const GgufValue& value) {
  return std::visit(
      [&](const auto& held) -> Json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::vector<GgufValue>>) {
          Json list = Json::array();
          for (const GgufValue& item : held) list.push_back(ToJson(item));
          return list;
        } else if constexpr (std::is_same_v<T, std::vector<uint64_t>>) {
          if (value.element != GgufType::kBool) return held;
          Json list = Json::array();
          for (const uint64_t item : held) list.push_back(item != 0);
          return list;
        } else if constexpr (std::is_same_v<T, uint64_t>) {
          return value.type == GgufType::kBool ? Json(held != 0) : Json(held);
        } else if constexpr (std::is_same_v<T, double>) {
          return value.type == GgufType::kFloat32 ? Shortest(held) : held;
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          if (value.element != GgufType::kFloat32) return held;
          Json list = Json::array();
          for (const double item : held) list.push_back(Shortest(item));
          return list;
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return std::string(held);
        } else {
          return held;
        }
      },
      value.value);
}

std::string TypeText(const GgufValue& value) {
  if (!value.is_array()) return std::string(GgufTypeName(value.type));
  return fmt::format("[{}]", GgufTypeName(value.element));
}

// The values found so far, by name. A name keeps its first value.
class Found {
 public:
  void Add(const char* name, Json value) {
    if (!values_.contains(name)) values_[name] = std::move(value);
  }
  // The number of rows of the embedding, for files that do not state the vocabulary's size.
  void AddVocabulary(const Checkpoint& checkpoint, std::string_view embedding) {
    const TensorEntry* entry = checkpoint.Find(embedding);
    if (entry != nullptr) Add("vocab_size", entry->tensor.rows());
  }
  // What follows from the numbers that are there: one kv head per head, heads that divide the
  // width.
  void AddImplied() {
    const int64_t heads = Integer("n_heads");
    const int64_t dim = Integer("dim");
    if (heads > 0) Add("n_kv_heads", heads);
    if (heads > 0 && dim > 0 && dim % heads == 0) Add("head_dim", dim / heads);
  }
  std::vector<ShowValue> Take() {
    std::vector<ShowValue> list;
    for (auto& [key, value] : values_.items()) list.push_back({key, "", std::move(value)});
    return list;
  }

 private:
  int64_t Integer(const char* name) const {
    return values_.contains(name) && values_[name].is_number_integer()
               ? values_[name].get<int64_t>()
               : 0;
  }
  Json values_ = Json::object();
};

void ReadGguf(const GgufFile& file, ShowReport& report) {
  report.format = fmt::format("GGUF v{}", file.version());
  for (const GgufEntry& entry : file.metadata()) {
    report.metadata.push_back({std::string(entry.key), TypeText(entry.value), ToJson(entry.value)});
  }
  const Result<std::string_view> arch = file.GetString("general.architecture");
  if (!arch) return;
  Found found;
  found.Add("architecture", std::string(*arch));
  for (const Convention& item : kConventions) {
    const GgufValue* value = file.Get(fmt::format("{}.{}", *arch, item.gguf));
    if (value != nullptr) found.Add(item.name, ToJson(*value));
  }
  found.AddVocabulary(file, "token_embd.weight");
  found.AddImplied();
  report.hyperparameters = found.Take();
}

Status ReadSafetensors(const SafetensorsCheckpoint& checkpoint, ShowReport& report) {
  report.format = "safetensors";
  for (const auto& [key, value] : checkpoint.metadata())
    report.metadata.push_back({"__metadata__." + key, "", value});
  std::error_code ignored;
  if (!std::filesystem::exists(checkpoint.folder() + "/config.json", ignored)) return {};
  LUCID_ASSIGN_OR_RETURN(const Json config, ReadHfConfig(checkpoint.folder()));
  for (const auto& [key, value] : config.items()) report.metadata.push_back({key, "", value});
  // Models of text and images keep the language model's numbers one level down.
  const bool nested = config.contains("text_config") && config["text_config"].is_object();
  const Json& numbers = nested ? config["text_config"] : config;
  Found found;
  if (config.contains("architectures") && config["architectures"].is_array() &&
      !config["architectures"].empty()) {
    found.Add("architecture", config["architectures"][0]);
  } else if (config.contains("model_type")) {
    found.Add("architecture", config["model_type"]);
  }
  for (const Convention& item : kConventions) {
    for (const char* key : item.hf) {
      if (numbers.contains(key) && !numbers[key].is_null()) found.Add(item.name, numbers[key]);
    }
  }
  found.AddVocabulary(checkpoint, "model.embed_tokens.weight");
  found.AddImplied();
  report.hyperparameters = found.Take();
  return {};
}

}  // namespace

Result<ShowReport> MakeShowReport(const std::string& path, const RopeOverrides& rope) {
  ShowReport report;
  LUCID_ASSIGN_OR_RETURN(report.checkpoint, OpenCheckpoint(path));
  if (report.checkpoint->format() == Checkpoint::Format::kGguf) {
    ReadGguf(static_cast<const GgufFile&>(*report.checkpoint), report);
  } else {
    LUCID_RETURN_IF_ERROR(
        ReadSafetensors(static_cast<const SafetensorsCheckpoint&>(*report.checkpoint), report));
  }
  // Of a model that this build does not run, only the keys above are known.
  Result<ModelDescription> model = DescribeModel(path, rope);
  if (!model && rope != RopeOverrides()) return tl::unexpected<Error>(model.error());
  if (model) {
    report.positions = std::move(model->positions);
    for (auto& [name, reason] : model->passed_over) report.passed_over[reason].push_back(name);
  } else {
    report.refusal = model.error().message;
  }
  for (const TensorEntry& entry : report.checkpoint->tensors()) {
    TypeTotals& totals = report.types[entry.tensor.dtype];
    ++totals.tensors;
    totals.params += entry.tensor.elements();
    totals.bytes += entry.tensor.bytes();
    report.n_params += entry.tensor.elements();
    report.tensor_bytes += entry.tensor.bytes();
  }
  return report;
}

}  // namespace lucid::cli
