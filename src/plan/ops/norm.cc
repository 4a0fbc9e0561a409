// Normalisation, alone and fused with the residual sum before it.
#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

// A square and a sum, then a scale and a weight, per value, and one more for what a row shares
// (mean, epsilon, root), as is customary.
constexpr int64_t kNormFlopsPerValue = 5;
// The same with a mean, a difference from it and a bias.
constexpr int64_t kLayerNormFlopsPerValue = 8;

Result<Shape> NormShape(const Plan& plan, const Op& op, const ValueInfo& x, Value weight,
                        const NormAttrs& norm) {
  const int64_t width = x.shape.Width();
  if (norm.dim <= 0 || width % norm.dim != 0) {
    return Err(ErrorCode::kInvalidArgument, "{}: rows of {} do not split into groups of {}",
               op.name, width, norm.dim);
  }
  if (weight.present() && plan.Info(weight).shape != Shape{norm.dim} &&
      (op.kind != OpKind::kLayerNorm || plan.Info(weight).shape != Shape{width})) {
    return Err(ErrorCode::kInvalidArgument, "{}: weight {} does not fit groups of {}", op.name,
               plan.Info(weight).shape.ToString(), norm.dim);
  }
  if (width == norm.dim) return Shape{x.shape[0], norm.dim};
  return Shape{x.shape[0], width / norm.dim, norm.dim};
}

}  // namespace

Shapes InferRmsNorm(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  LUCID_ASSIGN_OR_RETURN(const Shape shape, NormShape(plan, op, In(plan, op, 0), op.inputs[1],
                                                      std::get<NormAttrs>(op.attrs)));
  return std::vector<Shape>{shape};
}

Cost CostRmsNorm(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.flops = kNormFlopsPerValue * Elements(In(plan, op, 0), work);
  cost.weight_bytes = WeightBytes(plan, op.inputs[1], work);
  cost.activation_bytes = 2 * Bytes(In(plan, op, 0), work);
  return cost;
}

Shapes InferLayerNorm(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 1));
  LUCID_ASSIGN_OR_RETURN(const Shape shape, NormShape(plan, op, In(plan, op, 0), op.inputs[1],
                                                      std::get<NormAttrs>(op.attrs)));
  if (op.inputs[2].present() &&
      (!op.inputs[1].present() || In(plan, op, 2).shape != In(plan, op, 1).shape)) {
    return Err(ErrorCode::kInvalidArgument, "{}: the bias is not as long as the weight", op.name);
  }
  return std::vector<Shape>{shape};
}

Cost CostLayerNorm(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.flops = kLayerNormFlopsPerValue * Elements(In(plan, op, 0), work);
  cost.weight_bytes = WeightBytes(plan, op.inputs[1], work) + WeightBytes(plan, op.inputs[2], work);
  cost.activation_bytes = 2 * Bytes(In(plan, op, 0), work);
  return cost;
}

Shapes InferAddRmsNorm(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 3));
  if (In(plan, op, 0).shape != In(plan, op, 1).shape) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} and {} differ", op.name,
               In(plan, op, 0).shape.ToString(), In(plan, op, 1).shape.ToString());
  }
  LUCID_ASSIGN_OR_RETURN(const Shape shape, NormShape(plan, op, In(plan, op, 0), op.inputs[2],
                                                      std::get<NormAttrs>(op.attrs)));
  return std::vector<Shape>{In(plan, op, 0).shape, shape};
}

Cost CostAddRmsNorm(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.flops = (1 + kNormFlopsPerValue) * Elements(In(plan, op, 0), work);
  cost.weight_bytes = WeightBytes(plan, op.inputs[2], work);
  cost.activation_bytes = 4 * Bytes(In(plan, op, 0), work);
  return cost;
}

}  // namespace lucid::ops
