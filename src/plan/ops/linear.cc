// Linear layers and their fused groups.
#include "plan/ops/ops.h"

namespace lucid::ops {

Status NeedInputs(const Op& op, size_t count) {
  if (op.inputs.size() < count) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} operands, wants {}", op.name, op.inputs.size(),
               count);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!op.inputs[i].present())
      return Err(ErrorCode::kInvalidArgument, "{}: operand {} is absent", op.name, i);
  }
  return {};
}

int64_t WeightBytes(const Plan& plan, Value weight, const Workload& work) {
  if (!weight.present()) return 0;
  const ValueInfo& info = plan.Info(weight);
  const DType dtype =
      work.weight_dtypes.empty() ? DType::kF32 : work.weight_dtypes[static_cast<size_t>(weight.id)];
  const int64_t n_in = info.shape[info.shape.rank - 1].size;
  return info.shape.Elements({}) / n_in * RowBytes(dtype, n_in);
}

namespace {

// [rows, n_out] of x [rows, n_in] and w [n_out, n_in], after checking that they and the bias fit.
Result<Shape> LinearShape(const Plan& plan, const Op& op, Value x, Value w, Value bias) {
  const ValueInfo& input = plan.Info(x);
  const ValueInfo& weight = plan.Info(w);
  if (weight.kind != ValueKind::kWeight || weight.shape.rank != 2) {
    return Err(ErrorCode::kInvalidArgument, "{}: the weight is not a matrix", op.name);
  }
  if (input.shape.Width() != weight.shape[1].size) {
    return Err(ErrorCode::kInvalidArgument, "{}: input {} does not fit weight {}", op.name,
               input.shape.ToString(), weight.shape.ToString());
  }
  if (bias.present() && plan.Info(bias).shape != Shape{weight.shape[0]}) {
    return Err(ErrorCode::kInvalidArgument, "{}: bias {} does not fit weight {}", op.name,
               plan.Info(bias).shape.ToString(), weight.shape.ToString());
  }
  return Shape{input.shape[0], weight.shape[0]};
}

Cost LinearCost(const Plan& plan, Value x, Value w, Value bias, const Workload& work) {
  const int64_t rows = plan.Info(x).shape[0].Bind(work.sizes());
  const int64_t n_out = plan.Info(w).shape[0].size;
  const int64_t n_in = plan.Info(w).shape[1].size;
  Cost cost;
  if (rows == 0) return cost;  // no logits are wanted: nothing is read
  cost.macs = rows * n_out * n_in;
  cost.flops = 2 * cost.macs + (bias.present() ? rows * n_out : 0);
  cost.weight_bytes = WeightBytes(plan, w, work) + WeightBytes(plan, bias, work);
  cost.activation_bytes = 4 * rows * n_out;
  return cost;
}

}  // namespace

Shapes InferLinear(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  LUCID_ASSIGN_OR_RETURN(const Shape shape,
                         LinearShape(plan, op, op.inputs[0], op.inputs[1], op.inputs[2]));
  return std::vector<Shape>{shape};
}

Cost CostLinear(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost = LinearCost(plan, op.inputs[0], op.inputs[1], op.inputs[2], work);
  cost.activation_bytes += Bytes(In(plan, op, 0), work);
  return cost;
}

Shapes InferLinearGroup(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 1));
  std::vector<Shape> shapes;
  for (size_t i = 1; i + 1 < op.inputs.size(); i += 2) {
    LUCID_ASSIGN_OR_RETURN(const Shape shape,
                           LinearShape(plan, op, op.inputs[0], op.inputs[i], op.inputs[i + 1]));
    shapes.push_back(shape);
  }
  return shapes;
}

Cost CostLinearGroup(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  for (size_t i = 1; i + 1 < op.inputs.size(); i += 2) {
    cost += LinearCost(plan, op.inputs[0], op.inputs[i], op.inputs[i + 1], work);
  }
  cost.activation_bytes += Bytes(In(plan, op, 0), work);
  return cost;
}

Shapes InferGluLinear(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  LUCID_ASSIGN_OR_RETURN(const Shape gate,
                         LinearShape(plan, op, op.inputs[0], op.inputs[1], op.inputs[2]));
  LUCID_ASSIGN_OR_RETURN(const Shape up,
                         LinearShape(plan, op, op.inputs[0], op.inputs[3], op.inputs[4]));
  if (gate != up)
    return Err(ErrorCode::kInvalidArgument, "{}: gate and up differ in shape", op.name);
  return std::vector<Shape>{gate};
}

Cost CostGluLinear(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost = LinearCost(plan, op.inputs[0], op.inputs[1], op.inputs[2], work);
  cost += LinearCost(plan, op.inputs[0], op.inputs[3], op.inputs[4], work);
  // The two products stay in registers: only the input and one result move.
  const ValueInfo& out = plan.Info(op.outputs[0]);
  cost.flops += 5 * Elements(out, work);  // as CostGlu
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(out, work);
  return cost;
}

}  // namespace lucid::ops
