#include "engine/describe.h"

#include <utility>

#include "exec/packed_weights.h"
#include "models/load.h"
#include "models/outline.h"

namespace lucid {

Result<ModelDescription> DescribeModel(const std::string& path, const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(const Model model, LoadModel(path, rope, Contents::kNone));
  ModelDescription described{.positions = DescribePositions(model.config), .passed_over = {}};
  for (const SpareTensor& spare : model.weights.passed_over()) {
    described.passed_over.emplace_back(spare.name, spare.reason);
  }
  return described;
}

Result<PlanDescription> DescribePlan(const std::string& path, const std::string& type,
                                     const RopeOverrides& rope, bool fused) {
  LUCID_ASSIGN_OR_RETURN(Model model, LoadHeaders(path, type, rope));
  PlanDescription described;
  described.weight_dtypes = model.weights.dtypes();
  described.plan = fused ? FusedPlan(model) : std::move(model.plan);
  return described;
}

Result<ShapeFlow> DescribeFlow(const std::string& path, const std::string& type,
                               const RopeOverrides& rope, bool fused, const FlowOptions& options) {
  LUCID_ASSIGN_OR_RETURN(const Model model, LoadHeaders(path, type, rope));
  return MakeShapeFlow(fused ? FusedPlan(model) : model.plan, model.config, model.weights.dtypes(),
                       options);
}

}  // namespace lucid
