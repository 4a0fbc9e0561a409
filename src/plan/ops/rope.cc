// Rotary position embedding, alone and fused with the norm of each head before it.
#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

// 4 multiplications and 2 additions per rotated pair.
constexpr int64_t kRopeFlopsPerPair = 6;
constexpr int64_t kNormFlopsPerValue = 5;  // as CostRmsNorm

Result<Shape> RopeShape(const Op& op, const ValueInfo& x, const RopeAttrs& rope) {
  const int64_t width = x.shape.Width();
  if (rope.head_dim <= 0 || width % rope.head_dim != 0) {
    return Err(ErrorCode::kInvalidArgument, "{}: rows of {} do not split into heads of {}", op.name,
               width, rope.head_dim);
  }
  const int64_t rotary = rope.spec.rotary_dim;
  if (rotary <= 0 || rotary % 2 != 0 || rope.first < 0 || rope.first + rotary > rope.head_dim) {
    return Err(ErrorCode::kInvalidArgument, "{}: rotary_dim {} does not fit head_dim {}", op.name,
               rotary, rope.head_dim);
  }
  return Shape{x.shape[0], width / rope.head_dim, rope.head_dim};
}

int64_t RopeFlops(const ValueInfo& x, const RopeAttrs& rope, const Workload& work) {
  return Elements(x, work) / rope.head_dim * (rope.spec.rotary_dim / 2) * kRopeFlopsPerPair;
}

}  // namespace

Shapes InferRope(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  LUCID_ASSIGN_OR_RETURN(const Shape shape,
                         RopeShape(op, In(plan, op, 0), std::get<RopeAttrs>(op.attrs)));
  return std::vector<Shape>{shape};
}

Cost CostRope(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.flops = RopeFlops(In(plan, op, 0), std::get<RopeAttrs>(op.attrs), work);
  cost.activation_bytes = 2 * Bytes(In(plan, op, 0), work);
  return cost;
}

Shapes InferNormRope(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 3));
  const auto& attrs = std::get<NormRopeAttrs>(op.attrs);
  if (attrs.norm.dim != attrs.rope.head_dim ||
      plan.Info(op.inputs[1]).shape != Shape{attrs.norm.dim}) {
    return Err(ErrorCode::kInvalidArgument, "{}: the norm is not over heads of {}", op.name,
               attrs.rope.head_dim);
  }
  LUCID_ASSIGN_OR_RETURN(const Shape shape, RopeShape(op, In(plan, op, 0), attrs.rope));
  return std::vector<Shape>{shape};
}

Cost CostNormRope(const Plan& plan, const Op& op, const Workload& work) {
  const auto& attrs = std::get<NormRopeAttrs>(op.attrs);
  Cost cost;
  cost.flops = kNormFlopsPerValue * Elements(In(plan, op, 0), work) +
               RopeFlops(In(plan, op, 0), attrs.rope, work);
  cost.weight_bytes = WeightBytes(plan, op.inputs[1], work);
  cost.activation_bytes = 2 * Bytes(In(plan, op, 0), work);
  return cost;
}

}  // namespace lucid::ops
