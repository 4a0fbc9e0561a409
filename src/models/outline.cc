#include "models/outline.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "format/hf_config.h"
#include "plan/pass.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// Types of a GGUF file that is quantised on the whole.
struct Mix {
  std::string_view name;
  DType most;
  DType more;  // of the output matrix, and of what suffers most in half of the layers
};
constexpr std::array kMixes = {Mix{"q4_k_m", DType::kQ4_K, DType::kQ6_K},
                               Mix{"q5_k_m", DType::kQ5_K, DType::kQ6_K}};

// The names that config.json files have for types.
constexpr std::array kTorchTypes = {
    std::pair<std::string_view, std::string_view>{"float32", "f32"},
    std::pair<std::string_view, std::string_view>{"float16", "f16"},
    std::pair<std::string_view, std::string_view>{"bfloat16", "bf16"},
};

// Layers whose attn_v and ffn_down have the larger type: the first and the last eighth, and every
// third between them.
bool HasMoreBits(int64_t layer, int64_t n_layers) {
  const int64_t eighth = n_layers / 8;
  return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

// What rows of n_in values can have where blocks of `type` do not divide them.
DType Fitting(DType type, int64_t n_in) {
  if (n_in % Info(type).block_elems == 0) return type;
  const DType next = type == DType::kQ4_K   ? DType::kQ5_0
                     : type == DType::kQ5_K ? DType::kQ5_1
                                            : DType::kQ8_0;
  return n_in % Info(next).block_elems == 0 ? next : DType::kF16;
}

bool IsVector(const ValueInfo& info) {
  return info.shape.rank == 1 || info.name.ends_with(".bias");
}

bool IsRouter(const ValueInfo& info) {
  return SplitLayer(info.name).pattern.starts_with("blk.{}.ffn_gate_inp");
}

DType TypeOf(const Mix& mix, const ValueInfo& info, bool has_output, int64_t n_layers) {
  const auto [slot, layer] = SplitLayer(info.name);
  const bool last = slot == "output" || (!has_output && slot == "token_embd");
  const bool feels =
      slot == "blk.{}.attn_v" || slot == "blk.{}.ffn_down" || slot == "blk.{}.ffn_down_exps";
  return last || (feels && HasMoreBits(std::stoll(layer), n_layers)) ? mix.more : mix.most;
}

std::string MixNames() {
  std::string names;
  for (const Mix& mix : kMixes) names += std::string(mix.name) + ", ";
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.decode == nullptr) continue;
    for (const char c : info.name) names += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    names += ", ";
  }
  return names.substr(0, names.size() - 2);
}

bool HasOutput(const Plan& plan) {
  for (const Value v : plan.Weights()) {
    if (plan.Info(v).name == "output") return true;
  }
  return false;
}

// One type for all matrices, and another for those that `pick` takes.
template <typename Pick>
std::vector<DType> PlainTypes(const Plan& plan, DType type, DType other, const Pick& pick) {
  std::vector<DType> types(plan.values.size(), DType::kF32);
  for (const Value v : plan.Weights()) {
    const ValueInfo& info = plan.Info(v);
    if (!IsVector(info)) types[static_cast<size_t>(v.id)] = pick(info) ? other : type;
  }
  return types;
}

// The types that the config itself speaks of.
Result<std::vector<DType>> PublishedTypes(const Plan& plan, const Json& config,
                                          const std::string& path) {
  const auto text = [&config](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_string() ? found->get<std::string>() : "";
  };
  std::string name = text("dtype").empty() ? text("torch_dtype") : text("dtype");
  if (name.empty()) name = "float32";  // what Hugging Face takes
  std::optional<DType> type;
  for (const auto& [torch, ours] : kTorchTypes) {
    if (name == torch) type = DTypeFromName(ours);
  }
  if (!type) {
    return Err(ErrorCode::kUnsupported, "{}: torch_dtype is {}; say what to count with --type",
               path, name);
  }
  std::string method;
  if (const auto found = config.find("quantization_config");
      found != config.end() && found->is_object() && found->contains("quant_method")) {
    const Json& value = (*found)["quant_method"];
    method = value.is_string() ? value.get<std::string>() : "unknown";
  }
  if (method == "mxfp4") {
    return PlainTypes(plan, *type, DType::kMXFP4,
                      [](const ValueInfo& info) { return info.name.ends_with("_exps"); });
  }
  if (method == "fp8") {
    return PlainTypes(plan, *type, DType::kF8E4M3, [](const ValueInfo& info) {
      return info.name.starts_with("blk.") && !IsRouter(info);
    });
  }
  if (!method.empty()) {
    return Err(ErrorCode::kUnsupported,
               "{}: the bytes of weights quantised by {} are not known; say what to count with "
               "--type",
               path, method);
  }
  return PlainTypes(plan, *type, *type, [](const ValueInfo&) { return false; });
}

Status ReadOutline(Model& model, const Json& config, const RopeOverrides& rope) {
  // How weights are quantised changes their types, and no shape.
  Json shapes = config;
  shapes.erase("quantization_config");
  LUCID_ASSIGN_OR_RETURN(ArchAndConfig read, ReadModelConfig(shapes, rope));
  model.arch = read.arch;
  model.config = std::move(read.config);
  model.plan = BuildPlan(*model.arch, model.config);
  return VerifyPlan(model.plan);
}

// A config.json, or a folder that has one and no weights beside it.
std::string ConfigOnly(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (fs::directory_iterator it(path, ignored), end; !ignored && it != end;
         it.increment(ignored)) {
      const std::string extension = it->path().extension().string();
      if (extension == ".safetensors" || extension == ".gguf") return "";
    }
    return fs::exists(path + "/config.json", ignored) ? path + "/config.json" : "";
  }
  return path.ends_with(".json") && !path.ends_with(".index.json") ? path : "";
}

}  // namespace

Result<std::vector<DType>> TypesOfMix(const Plan& plan, const ModelConfig& config,
                                      std::string_view mix) {
  Mix chosen{};
  for (const Mix& known : kMixes) {
    if (known.name == mix) chosen = known;
  }
  if (chosen.name.empty()) {
    const std::optional<DType> type = DTypeFromName(mix);
    if (!type || Info(*type).decode == nullptr) {
      return Err(ErrorCode::kInvalidArgument, "there are no weights of type '{}'; choose {}", mix,
                 MixNames());
    }
    chosen = {Name(*type), *type, *type};
  }
  const bool has_output = HasOutput(plan);
  std::vector<DType> types(plan.values.size(), DType::kF32);
  for (const Value v : plan.Weights()) {
    const ValueInfo& info = plan.Info(v);
    if (IsVector(info) || IsRouter(info)) continue;
    types[static_cast<size_t>(v.id)] = Fitting(TypeOf(chosen, info, has_output, config.n_layers),
                                               info.shape[info.shape.rank - 1].size);
  }
  return types;
}

Result<Model> OutlineModel(const std::string& path, std::string_view mix,
                           const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(path));
  if (!config.is_object()) return Err(ErrorCode::kInvalidFile, "{}: it is not a JSON object", path);
  Model model;
  if (const Status read = ReadOutline(model, config, rope); !read) {
    return Err(read.error().code, "{}: {}", path, read.error().message);
  }
  LUCID_ASSIGN_OR_RETURN(const std::vector<DType> types,
                         mix.empty() ? PublishedTypes(model.plan, config, path)
                                     : TypesOfMix(model.plan, model.config, mix));
  LUCID_ASSIGN_OR_RETURN(model.weights, Weights::Outline(model.plan, types));
  return model;
}

Result<Model> LoadHeaders(const std::string& path, std::string_view mix,
                          const RopeOverrides& rope) {
  if (const std::string config = ConfigOnly(path); !config.empty()) {
    return OutlineModel(config, mix, rope);
  }
  LUCID_ASSIGN_OR_RETURN(Model model, LoadModel(path, rope, Contents::kNone));
  if (mix.empty()) return model;
  LUCID_ASSIGN_OR_RETURN(const std::vector<DType> types, TypesOfMix(model.plan, model.config, mix));
  LUCID_ASSIGN_OR_RETURN(model.weights, Weights::Outline(model.plan, types));
  return model;
}

}  // namespace lucid
