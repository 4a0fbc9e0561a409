// ArchSpec: everything Lucid knows of one architecture. registry.cc lists them; models/<family>.cc
// defines them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "format/gguf.h"
#include "models/model_config.h"
#include "models/names.h"
#include "plan/builder.h"

namespace lucid {

class GgufKeyWriter;

struct ArchSpec {
  std::string_view name;               // "llama"
  std::string_view gguf;               // GGUF general.architecture; "" where there is none
  std::array<std::string_view, 2> hf;  // config.json architectures[0]
  // Read where the file format has the architecture.
  Result<ModelConfig> (*from_gguf)(const GgufFile& file) = nullptr;
  Result<ModelConfig> (*from_hf)(const nlohmann::ordered_json& config);
  // Of the names below; files that were saved without the head of the model lack it.
  std::string_view hf_prefix = {};
  std::array<NameTable, 6> hf_names;  // searched in order
  // For writing GGUF files (gguf_export.h): the architecture that they name, where `gguf` is empty;
  // keys besides those that follow from ModelConfig for all; slots whose tensors have names of
  // their own.
  std::string_view gguf_as = {};
  void (*to_gguf)(const ModelConfig& c, GgufKeyWriter& keys) = nullptr;
  NameTable gguf_names = {};
  Value (*embed)(Builder& b, const ModelConfig& c);
  Value (*block)(Builder& b, const ModelConfig& c, int layer, Value x);
  Value (*head)(Builder& b, const ModelConfig& c, Value x);
};

std::span<const ArchSpec* const> AllArchs();
// kUnsupported names the architecture and those this build knows.
Result<const ArchSpec*> FindArchByGguf(std::string_view architecture);
Result<const ArchSpec*> FindArchByHf(std::string_view architecture);

// Emits the whole model: embed, every block, head. Residual streams are named "embed" and
// "blk.<i>.out".
Plan BuildPlan(const ArchSpec& arch, const ModelConfig& config);

}  // namespace lucid
