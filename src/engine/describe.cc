#include "engine/describe.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "exec/packed_weights.h"
#include "format/checkpoint.h"
#include "format/hf_config.h"
#include "models/load.h"
#include "plan/pass.h"

namespace lucid {

Result<std::vector<std::string>> DescribePositions(const std::string& path,
                                                   const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(path));
  LUCID_ASSIGN_OR_RETURN(const ArchAndConfig read, ReadModelConfig(*checkpoint, rope));
  return DescribePositions(read.config);
}

namespace {

// The config.json that `path` is, or that a folder without weights holds; else "".
std::string ConfigAlone(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return path.ends_with(".json") && !path.ends_with(".index.json") ? path : "";
  }
  for (const auto& file : fs::directory_iterator(path, ignored)) {
    const std::string name = file.path().filename();
    if (name.ends_with(".safetensors") || name.ends_with(".index.json")) return "";
  }
  const fs::path config = fs::path(path) / "config.json";
  return fs::exists(config, ignored) ? config.string() : "";
}

// The type of matrices that a config states; nothing where it does not, or says no more than how
// they were quantised.
std::optional<DType> StatedType(const nlohmann::ordered_json& config) {
  if (config.contains("quantization_config")) return std::nullopt;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto found = config.find(key);
    if (found == config.end()) continue;
    if (*found == "float32") return DType::kF32;
    if (*found == "float16") return DType::kF16;
    if (*found == "bfloat16") return DType::kBF16;
  }
  return std::nullopt;
}

Result<PlanDescription> ReadConfigAlone(const std::string& path, const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(nlohmann::ordered_json json, ReadJsonFile(path));
  if (!json.is_object()) return Err(ErrorCode::kInvalidFile, "it is not a JSON object");
  const auto names = json.find("architectures");
  if (names == json.end() || !names->is_array() || names->empty() || !names->front().is_string()) {
    return Err(ErrorCode::kInvalidFile, "architectures does not name one");
  }
  LUCID_ASSIGN_OR_RETURN(const ArchSpec* arch, FindArchByHf(names->front().get<std::string>()));
  const std::optional<DType> type = StatedType(json);
  json.erase("quantization_config");  // changes types, and no shape
  LUCID_ASSIGN_OR_RETURN(ModelConfig config, arch->from_hf(json));
  LUCID_RETURN_IF_ERROR(ValidateConfig(config));
  LUCID_RETURN_IF_ERROR(OverrideRope(config, rope));
  LUCID_RETURN_IF_ERROR(ValidateConfig(config));
  PlanDescription described;
  described.plan = BuildPlan(*arch, config);
  LUCID_RETURN_IF_ERROR(VerifyPlan(described.plan));
  if (!type) return described;
  for (const ValueInfo& value : described.plan.values) {
    const bool vector = value.shape.rank == 1 || value.name.ends_with(".bias");
    described.weight_dtypes.push_back(vector ? DType::kF32 : *type);  // as they are once loaded
  }
  return described;
}

}  // namespace

Result<PlanDescription> DescribePlan(const std::string& path, const RopeOverrides& rope,
                                     bool fused) {
  if (const std::string config = ConfigAlone(path); !config.empty()) {
    Result<PlanDescription> described = ReadConfigAlone(config, rope);
    if (!described) return Err(described.error().code, "{}: {}", config, described.error().message);
    if (fused) described->plan = FusePlan(described->plan);
    return described;
  }
  LUCID_ASSIGN_OR_RETURN(Model model, LoadModel(path, rope));
  PlanDescription described;
  described.weight_dtypes = model.weights.dtypes();
  described.plan = fused ? FusedPlan(model) : std::move(model.plan);
  return described;
}

}  // namespace lucid
