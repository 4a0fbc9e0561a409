// Mixtures of experts: the choice of a token's experts, their matrices, and the weighted sum of
// what they give.
//
// Which experts a step touches is known only once it has run: then the workload says how many.
// Before, costs are those of choices that spread evenly: of E experts, T tokens with k each touch
// E (1 - (1 - k / E)^T) on average.
#include <cmath>

#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

constexpr int64_t kRouteFlopsPerExpert = 8;  // exponential, sums, comparisons

// What the step reads of the stack [E, ...].
int64_t TouchedBytes(const Plan& plan, Value stack, int64_t n_used, const Workload& work) {
  if (!stack.present()) return 0;
  const int64_t n_experts = plan.Info(stack).shape[0].size;
  if (work.touched_experts)
    return WeightBytes(plan, stack, work) / n_experts * *work.touched_experts;
  const auto experts = static_cast<double>(n_experts);
  const double missed = std::pow(1.0 - static_cast<double>(n_used) / experts,
                                 static_cast<double>(work.sizes().tokens));
  return std::llround(static_cast<double>(WeightBytes(plan, stack, work)) * (1.0 - missed));
}

int64_t UsedExperts(const Plan& plan, Value experts) {
  return plan.Info(experts).shape[1].size;
}

// [T, k, n_out] of rows of `n_in` values, the tokens' experts and a stack [E, n_out, n_in].
Result<Shape> ExpertShape(const Plan& plan, const Op& op, int64_t n_in, Value experts, Value w,
                          Value bias) {
  const ValueInfo& weight = plan.Info(w);
  const Shape& chosen = plan.Info(experts).shape;
  if (weight.kind != ValueKind::kWeight || weight.shape.rank != 3) {
    return Err(ErrorCode::kInvalidArgument, "{}: the weight is no stack of matrices", op.name);
  }
  if (chosen.rank != 2 || chosen[1].size > weight.shape[0].size) {
    return Err(ErrorCode::kInvalidArgument, "{}: choices {} of {} experts", op.name,
               chosen.ToString(), weight.shape[0].size);
  }
  if (n_in != weight.shape[2].size) {
    return Err(ErrorCode::kInvalidArgument, "{}: rows of {} do not fit weight {}", op.name, n_in,
               weight.shape.ToString());
  }
  if (bias.present() && plan.Info(bias).shape != Shape{weight.shape[0], weight.shape[1]}) {
    return Err(ErrorCode::kInvalidArgument, "{}: bias {} does not fit weight {}", op.name,
               plan.Info(bias).shape.ToString(), weight.shape.ToString());
  }
  return Shape{chosen[0], chosen[1], weight.shape[1]};
}

Cost ExpertCost(const Plan& plan, Value experts, Value w, Value bias, const Workload& work) {
  const int64_t n_used = UsedExperts(plan, experts);
  const Shape& shape = plan.Info(w).shape;
  Cost cost;
  cost.macs = work.sizes().tokens * n_used * shape[1].size * shape[2].size;
  cost.flops = 2 * cost.macs;
  cost.weight_bytes = TouchedBytes(plan, w, n_used, work) + TouchedBytes(plan, bias, n_used, work);
  return cost;
}

}  // namespace

Shapes InferRoute(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 1));
  const Shape& logits = In(plan, op, 0).shape;
  const RoutingRule& rule = std::get<RouteAttrs>(op.attrs).rule;
  if (logits.rank != 2 || rule.n_used < 1 || rule.n_used > logits[1].size) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} of the experts in {}", op.name, rule.n_used,
               logits.ToString());
  }
  const int64_t group = rule.n_groups > 0 ? logits[1].size / rule.n_groups : 0;
  if (group < 1 || group * rule.n_groups != logits[1].size || rule.groups_used > rule.n_groups ||
      group * rule.groups_used < rule.n_used) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} of {} experts cannot come from {} of {} groups",
               op.name, rule.n_used, logits[1].size, rule.groups_used, rule.n_groups);
  }
  if (op.inputs[1].present() && In(plan, op, 1).shape != Shape{logits[1]}) {
    return Err(ErrorCode::kInvalidArgument, "{}: bias {} does not fit logits {}", op.name,
               In(plan, op, 1).shape.ToString(), logits.ToString());
  }
  const Shape chosen{logits[0], int64_t{rule.n_used}};
  return std::vector<Shape>{chosen, chosen};
}

Cost CostRoute(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.flops = kRouteFlopsPerExpert * Elements(In(plan, op, 0), work);
  cost.weight_bytes = WeightBytes(plan, op.inputs[1], work);
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + 2 * Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

Shapes InferExpertGlu(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 3));
  const int64_t n_in = In(plan, op, 0).shape.Width();
  LUCID_ASSIGN_OR_RETURN(const Shape gate,
                         ExpertShape(plan, op, n_in, op.inputs[1], op.inputs[2], op.inputs[3]));
  LUCID_ASSIGN_OR_RETURN(const Shape up,
                         ExpertShape(plan, op, n_in, op.inputs[1], op.inputs[4], op.inputs[5]));
  if (gate != up || plan.Info(op.inputs[2]).shape != plan.Info(op.inputs[4]).shape) {
    return Err(ErrorCode::kInvalidArgument, "{}: gate and up differ in shape", op.name);
  }
  return std::vector<Shape>{gate};
}

Cost CostExpertGlu(const Plan& plan, const Op& op, const Workload& work) {
  const ValueInfo& out = plan.Info(op.outputs[0]);
  Cost cost = ExpertCost(plan, op.inputs[1], op.inputs[2], op.inputs[3], work);
  cost += ExpertCost(plan, op.inputs[1], op.inputs[4], op.inputs[5], work);
  cost.flops += 5 * Elements(out, work);  // as CostGlu
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(out, work);
  return cost;
}

Shapes InferExpertLinear(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 3));
  const Shape& x = In(plan, op, 0).shape;
  if (x.rank != 3 || x[1] != In(plan, op, 1).shape[1]) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} has no row for every choice {}", op.name,
               x.ToString(), In(plan, op, 1).shape.ToString());
  }
  LUCID_ASSIGN_OR_RETURN(const Shape shape, ExpertShape(plan, op, x[2].size, op.inputs[1],
                                                        op.inputs[2], op.inputs[3]));
  return std::vector<Shape>{shape};
}

Cost CostExpertLinear(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost = ExpertCost(plan, op.inputs[1], op.inputs[2], op.inputs[3], work);
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

Shapes InferMixExperts(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  const Shape& x = In(plan, op, 0).shape;
  if (x.rank != 3 || In(plan, op, 1).shape != Shape{x[0], x[1]}) {
    return Err(ErrorCode::kInvalidArgument, "{}: weights {} do not fit {}", op.name,
               In(plan, op, 1).shape.ToString(), x.ToString());
  }
  return std::vector<Shape>{Shape{x[0], x[2]}};
}

Cost CostMixExperts(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.flops = 2 * Elements(In(plan, op, 0), work);
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

}  // namespace lucid::ops
