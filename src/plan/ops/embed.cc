// Embedding lookup and the choice of output rows.
#include "plan/ops/ops.h"

namespace lucid::ops {

Shapes InferEmbed(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  const ValueInfo& table = In(plan, op, 0);
  if (table.shape.rank != 2)
    return Err(ErrorCode::kInvalidArgument, "{}: the table is not a matrix", op.name);
  return std::vector<Shape>{Shape{Symbol::kTokens, table.shape[1]}};
}

Cost CostEmbed(const Plan& plan, const Op& op, const Workload& work) {
  const ValueInfo& table = In(plan, op, 0);
  const int64_t vocab = table.shape[0].size;
  Cost cost;
  // A lookup streams one row per token, not the table.
  cost.weight_bytes = WeightBytes(plan, op.inputs[0], work) / vocab * work.sizes().tokens;
  cost.activation_bytes = Bytes(plan.Info(op.outputs[0]), work);
  if (std::get<EmbedAttrs>(op.attrs).scale != 1.0f)
    cost.flops = Elements(plan.Info(op.outputs[0]), work);
  return cost;
}

Shapes InferGatherRows(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  const ValueInfo& x = In(plan, op, 0);
  if (x.shape.rank != 2 || x.shape[0] != Dim(Symbol::kTokens)) {
    return Err(ErrorCode::kInvalidArgument, "{}: input {} has no row per token", op.name,
               x.shape.ToString());
  }
  return std::vector<Shape>{Shape{Symbol::kOutputs, x.shape[1]}};
}

Cost CostGatherRows(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.activation_bytes = 2 * Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

}  // namespace lucid::ops
