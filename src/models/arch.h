// ArchSpec: everything Lucid knows of one architecture. registry.cc lists them; models/<family>.cc
// defines them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "format/gguf.h"
#include "models/model_config.h"
#include "plan/builder.h"

namespace lucid {

// How a stored tensor becomes the weight a slot wants.
enum class Transform : int8_t {
  kNone,
  kAddOne,  // Gemma norms of Hugging Face files: the weight is (1 + stored)
};

// A slot of the plan and the tensor that fills it. "{}" stands for the layer number in both.
struct NameRule {
  std::string_view slot;
  std::string_view tensor;
  Transform transform = Transform::kNone;
};

struct ArchSpec {
  std::string_view name;  // "llama"
  std::string_view gguf;  // GGUF general.architecture
  std::string_view hf;    // config.json architectures[0]
  Result<ModelConfig> (*from_gguf)(const GgufFile& file);
  Result<ModelConfig> (*from_hf)(const nlohmann::ordered_json& config);
  // Slots are named as in GGUF files ("blk.0.attn_q" is the tensor "blk.0.attn_q.weight"), so only
  // Hugging Face files need a map.
  std::span<const NameRule> hf_names;
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
