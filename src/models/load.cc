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

Result<ArchAndConfig> ReadHfConfigOf(const nlohmann::ordered_json& config) {
  const auto names = config.find("architectures");
  if (names == config.end() || !names->is_array() || names->empty() ||
      !names->front().is_string()) {
    return Err(ErrorCode::kInvalidFile, "config.json: architectures does not name one");
  }
  ArchAndConfig result;
  LUCID_ASSIGN_OR_RETURN(result.arch, FindArchByHf(names->front().get<std::string>()));
  LUCID_ASSIGN_OR_RETURN(result.config, result.arch->from_hf(config));
  return result;
}

// The last steps of reading, for every kind of file.
Result<ArchAndConfig> Finish(Result<ArchAndConfig> read, const RopeOverrides& rope) {
  if (!read) return read;
  LUCID_RETURN_IF_ERROR(ValidateConfig(read->config));
  LUCID_RETURN_IF_ERROR(OverrideRope(read->config, rope));
  LUCID_RETURN_IF_ERROR(ValidateConfig(read->config));
  return read;
}

}  // namespace

Result<ArchAndConfig> ReadModelConfig(const nlohmann::ordered_json& config,
                                      const RopeOverrides& rope) {
  return Finish(ReadHfConfigOf(config), rope);
}

Result<ArchAndConfig> ReadModelConfig(const Checkpoint& checkpoint, const RopeOverrides& rope) {
  if (checkpoint.format() == Checkpoint::Format::kGguf) {
    return Finish(ReadGgufModelConfig(static_cast<const GgufFile&>(checkpoint)), rope);
  }
  LUCID_ASSIGN_OR_RETURN(
      const nlohmann::ordered_json config,
      ReadHfConfig(static_cast<const SafetensorsCheckpoint&>(checkpoint).folder()));
  return ReadModelConfig(config, rope);
}

namespace {

// The steps after opening know tensors and keys, not the file: name it here. Errors of a GGUF
// file's keys begin with it.
tl::unexpected<Error> In(const std::string& path, const Error& error) {
  if (error.message.starts_with(path)) return tl::unexpected<Error>(error);
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
