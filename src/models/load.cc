#include "models/load.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "format/gguf.h"
#include "format/hf_config.h"
#include "format/safetensors.h"
#include "plan/pass.h"

namespace lucid {
namespace {

Result<ArchAndConfig> ReadGgufModelConfig(const GgufFile& file) {
  ArchAndConfig result;
  LUCID_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  LUCID_ASSIGN_OR_RETURN(result.arch, FindArchByGguf(name));
  LUCID_ASSIGN_OR_RETURN(result.config, result.arch->from_gguf(file));
  return result;
}

Result<ArchAndConfig> ReadHfModelConfig(const SafetensorsCheckpoint& checkpoint) {
  LUCID_ASSIGN_OR_RETURN(const nlohmann::ordered_json config, ReadHfConfig(checkpoint.folder()));
  const auto names = config.find("architectures");
  if (names == config.end() || !names->is_array() || names->empty() ||
      !names->front().is_string()) {
    return Err(ErrorCode::kInvalidFile, "{}/config.json: architectures does not name one",
               checkpoint.folder());
  }
  ArchAndConfig result;
  LUCID_ASSIGN_OR_RETURN(result.arch, FindArchByHf(names->front().get<std::string>()));
  LUCID_ASSIGN_OR_RETURN(result.config, result.arch->from_hf(config));
  return result;
}

}  // namespace

Result<ArchAndConfig> ReadModelConfig(const Checkpoint& checkpoint, const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(
      ArchAndConfig result,
      checkpoint.format() == Checkpoint::Format::kGguf
          ? ReadGgufModelConfig(static_cast<const GgufFile&>(checkpoint))
          : ReadHfModelConfig(static_cast<const SafetensorsCheckpoint&>(checkpoint)));
  LUCID_RETURN_IF_ERROR(ValidateConfig(result.config));
  LUCID_RETURN_IF_ERROR(OverrideRope(result.config, rope));
  LUCID_RETURN_IF_ERROR(ValidateConfig(result.config));
  return result;
}

namespace {

// The steps after opening know tensors and keys, not the file: name it here.
tl::unexpected<Error> In(const std::string& path, const Error& error) {
  return Err(error.code, "{}: {}", path, error.message);
}

Status ReadPlan(Model& model, const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(ArchAndConfig read, ReadModelConfig(*model.checkpoint, rope));
  model.arch = read.arch;
  model.config = std::move(read.config);
  model.plan = BuildPlan(*model.arch, model.config);
  return VerifyPlan(model.plan);
}

}  // namespace

Result<Model> OpenModel(const std::string& path, const RopeOverrides& rope) {
  Model model;
  LUCID_ASSIGN_OR_RETURN(model.checkpoint, OpenCheckpoint(path));
  if (const Status read = ReadPlan(model, rope); !read) return In(path, read.error());
  return model;
}

Result<Model> LoadModel(const std::string& path, const RopeOverrides& rope, Contents contents) {
  LUCID_ASSIGN_OR_RETURN(Model model, OpenModel(path, rope));
  Result<Weights> weights =
      Weights::Load(model.plan, *model.arch, model.config, *model.checkpoint, contents);
  if (!weights) return In(path, weights.error());
  model.weights = *std::move(weights);
  return model;
}

}  // namespace lucid
