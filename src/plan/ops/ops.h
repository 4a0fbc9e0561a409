// Shape and cost functions of every op, by family; op_table.cc puts them into rows.
#pragma once

#include <vector>

#include "plan/op_table.h"

namespace lucid::ops {

using Shapes = Result<std::vector<Shape>>;

// Shorthand for the functions below.
inline const ValueInfo& In(const Plan& plan, const Op& op, size_t i) {
  return plan.Info(op.inputs[i]);
}
inline int64_t Elements(const ValueInfo& v, const Workload& work) {
  return v.shape.Elements(work.sizes());
}
// float32 bytes of an activation.
inline int64_t Bytes(const ValueInfo& v, const Workload& work) {
  return 4 * Elements(v, work);
}
// Stored bytes of a whole weight.
int64_t WeightBytes(const Plan& plan, Value weight, const Workload& work);
// Error unless the op has this many inputs, all present.
Status NeedInputs(const Op& op, size_t count);

Shapes InferEmbed(const Plan& plan, const Op& op);
Cost CostEmbed(const Plan& plan, const Op& op, const Workload& work);
Shapes InferGatherRows(const Plan& plan, const Op& op);
Cost CostGatherRows(const Plan& plan, const Op& op, const Workload& work);

Shapes InferRmsNorm(const Plan& plan, const Op& op);
Cost CostRmsNorm(const Plan& plan, const Op& op, const Workload& work);
Shapes InferLayerNorm(const Plan& plan, const Op& op);
Cost CostLayerNorm(const Plan& plan, const Op& op, const Workload& work);
Shapes InferAddRmsNorm(const Plan& plan, const Op& op);
Cost CostAddRmsNorm(const Plan& plan, const Op& op, const Workload& work);

Shapes InferLinear(const Plan& plan, const Op& op);
Cost CostLinear(const Plan& plan, const Op& op, const Workload& work);
Shapes InferLinearGroup(const Plan& plan, const Op& op);
Cost CostLinearGroup(const Plan& plan, const Op& op, const Workload& work);
Shapes InferGluLinear(const Plan& plan, const Op& op);
Cost CostGluLinear(const Plan& plan, const Op& op, const Workload& work);

Shapes InferRope(const Plan& plan, const Op& op);
Cost CostRope(const Plan& plan, const Op& op, const Workload& work);
Shapes InferNormRope(const Plan& plan, const Op& op);
Cost CostNormRope(const Plan& plan, const Op& op, const Workload& work);

Shapes InferKvStore(const Plan& plan, const Op& op);
Cost CostKvStore(const Plan& plan, const Op& op, const Workload& work);
Shapes InferAttention(const Plan& plan, const Op& op);
Cost CostAttention(const Plan& plan, const Op& op, const Workload& work);

Shapes InferRoute(const Plan& plan, const Op& op);
Cost CostRoute(const Plan& plan, const Op& op, const Workload& work);
Shapes InferExpertGlu(const Plan& plan, const Op& op);
Cost CostExpertGlu(const Plan& plan, const Op& op, const Workload& work);
Shapes InferExpertLinear(const Plan& plan, const Op& op);
Cost CostExpertLinear(const Plan& plan, const Op& op, const Workload& work);
Shapes InferMixExperts(const Plan& plan, const Op& op);
Cost CostMixExperts(const Plan& plan, const Op& op, const Workload& work);

Shapes InferHeadLinear(const Plan& plan, const Op& op);
Cost CostHeadLinear(const Plan& plan, const Op& op, const Workload& work);
Shapes InferConcat(const Plan& plan, const Op& op);
Cost CostConcat(const Plan& plan, const Op& op, const Workload& work);
Shapes InferMlaAttention(const Plan& plan, const Op& op);
Cost CostMlaAttention(const Plan& plan, const Op& op, const Workload& work);
Cost CostByPhase(const Plan& plan, const Op& op, const Workload& work);

Shapes InferSameShapes(const Plan& plan,
                       const Op& op);  // Add, Activate, ...: output like the inputs
Cost CostAdd(const Plan& plan, const Op& op, const Workload& work);
Shapes InferGlu(const Plan& plan, const Op& op);  // gate may have one value a row
Cost CostGlu(const Plan& plan, const Op& op, const Workload& work);
Cost CostActivate(const Plan& plan, const Op& op, const Workload& work);
Cost CostScale(const Plan& plan, const Op& op, const Workload& work);
Cost CostClamp(const Plan& plan, const Op& op, const Workload& work);
Cost CostSoftcap(const Plan& plan, const Op& op, const Workload& work);

}  // namespace lucid::ops
