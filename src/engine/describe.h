// What a model is, in words, without loading its weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/shape_flow.h"
#include "plan/plan.h"
#include "plan/rope_overrides.h"
#include "tensor/dtype.h"

namespace lucid {

struct ModelDescription {
  std::vector<std::string> positions;  // how it knows them: "rope, theta 10000, 64 dimensions"
  // Tensors that no weight is made of, and what they are ("a mask of earlier versions").
  std::vector<std::pair<std::string, std::string>> passed_over;
};

// The model at `path`. Errors as LoadModel: an architecture that this build does not have is one.
Result<ModelDescription> DescribeModel(const std::string& path, const RopeOverrides& rope);

struct PlanDescription {
  Plan plan;
  std::vector<DType> weight_dtypes;  // by value id: the types that weights have once loaded
};

// The plan of the model at `path`, as declared or as it runs (`fused`), from headers alone. A
// config.json will do; `type` is what its weights would be ("q8_0", "q4_k_m"), "" what it says.
// Errors as LoadHeaders.
Result<PlanDescription> DescribePlan(const std::string& path, const std::string& type,
                                     const RopeOverrides& rope, bool fused);

// How shapes go through the model at `path`, from headers alone; arguments and errors as
// DescribePlan, and those of MakeShapeFlow.
Result<ShapeFlow> DescribeFlow(const std::string& path, const std::string& type,
                               const RopeOverrides& rope, bool fused, const FlowOptions& options);

}  // namespace lucid
