// Elementwise ops: residual sums, gated units, scaling and soft caps.
#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

// One exp or tanh counts as this many operations beside the arithmetic around it; the same in every
// row of a report.
constexpr int64_t kTranscendentalFlops = 4;

Cost Elementwise(const Plan& plan, const Op& op, const Workload& work, int64_t flops_per_value) {
  const ValueInfo& out = plan.Info(op.outputs[0]);
  Cost cost;
  cost.flops = flops_per_value * Elements(out, work);
  cost.activation_bytes = Bytes(out, work) * static_cast<int64_t>(op.inputs.size() + 1);
  return cost;
}

}  // namespace

Shapes InferSameShapes(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, op.inputs.size()));
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    if (In(plan, op, i).shape != In(plan, op, 0).shape) {
      return Err(ErrorCode::kInvalidArgument, "{}: {} and {} differ", op.name,
                 In(plan, op, 0).shape.ToString(), In(plan, op, i).shape.ToString());
    }
  }
  return std::vector<Shape>{In(plan, op, 0).shape};
}

Shapes InferGlu(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  const Shape& gate = In(plan, op, 0).shape;
  const Shape& up = In(plan, op, 1).shape;
  if (gate != up && gate != Shape{up[0], 1}) {
    return Err(ErrorCode::kInvalidArgument, "{}: gate {} does not fit {}", op.name, gate.ToString(),
               up.ToString());
  }
  return std::vector<Shape>{up};
}

Cost CostAdd(const Plan& plan, const Op& op, const Workload& work) {
  return Elementwise(plan, op, work, 1);
}
Cost CostGlu(const Plan& plan, const Op& op, const Workload& work) {
  return Elementwise(plan, op, work, 1 + kTranscendentalFlops);
}
Cost CostActivate(const Plan& plan, const Op& op, const Workload& work) {
  return Elementwise(plan, op, work, kTranscendentalFlops);
}
Cost CostScale(const Plan& plan, const Op& op, const Workload& work) {
  return Elementwise(plan, op, work, 1);
}
Cost CostClamp(const Plan& plan, const Op& op, const Workload& work) {
  return Elementwise(plan, op, work, 2);
}
Cost CostSoftcap(const Plan& plan, const Op& op, const Workload& work) {
  return Elementwise(plan, op, work, 2 + kTranscendentalFlops);
}

}  // namespace lucid::ops
