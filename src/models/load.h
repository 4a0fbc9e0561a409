// LoadModel: a path becomes a verified plan with weights. Neighbours: arch.h (what models are),
// weights.h (slots to tensors).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "format/checkpoint.h"
#include "models/arch.h"
#include "models/weights.h"

namespace lucid {

struct Model {
  std::unique_ptr<Checkpoint> checkpoint;  // the mapped files; none of an outline (outline.h)
  const ArchSpec* arch = nullptr;
  ModelConfig config;
  Plan plan;        // verified, not fused
  Weights weights;  // by the plan's value ids, which fusing keeps
};

// Reads the hyperparameters of an opened checkpoint with its architecture's reader and validates
// them.
struct ArchAndConfig {
  const ArchSpec* arch = nullptr;
  ModelConfig config;
};
Result<ArchAndConfig> ReadModelConfig(const Checkpoint& checkpoint, const RopeOverrides& rope = {});
// The same of a config.json alone.
Result<ArchAndConfig> ReadModelConfig(const nlohmann::ordered_json& config,
                                      const RopeOverrides& rope = {});

// A model without its weights: `weights` is left empty.
Result<Model> OpenModel(const std::string& path, const RopeOverrides& rope = {});

// `path`: whatever OpenCheckpoint takes. Reads no weights: they are mapped, and read when first
// used. `rope` changes how positions are rotated.
// kNone reads none at all, also where weights must be copied: for counting.
Result<Model> LoadModel(const std::string& path, const RopeOverrides& rope = {},
                        Contents contents = Contents::kRead);

}  // namespace lucid
