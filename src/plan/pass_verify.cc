#include "plan/op_table.h"
#include "plan/pass.h"

namespace lucid {
namespace {

Status VerifyOp(const Plan& plan, size_t index, std::vector<bool>& written) {
  const Op& op = plan.ops[index];
  for (const Value v : op.inputs) {
    if (!v.present()) continue;
    if (v.id >= static_cast<int32_t>(plan.values.size())) {
      return Err(ErrorCode::kInvalidArgument, "{}: operand {} is not in the plan", op.name, v.id);
    }
    if (!written[static_cast<size_t>(v.id)]) {
      return Err(ErrorCode::kInvalidArgument, "{}: reads {} before it is written", op.name,
                 plan.Info(v).name);
    }
  }
  Result<std::vector<Shape>> shapes = Info(op.kind).infer(plan, op);
  LUCID_RETURN_IF_ERROR(shapes);
  if (shapes->size() != op.outputs.size()) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} results, wants {}", op.name, op.outputs.size(),
               shapes->size());
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const Value out = op.outputs[i];
    const ValueInfo& info = plan.Info(out);
    if (written[static_cast<size_t>(out.id)]) {
      return Err(ErrorCode::kInvalidArgument, "{}: {} is written twice", op.name, info.name);
    }
    if (info.shape != (*shapes)[i]) {
      return Err(ErrorCode::kInvalidArgument, "{}: {} has shape {}, the op gives {}", op.name,
                 info.name, info.shape.ToString(), (*shapes)[i].ToString());
    }
    if (info.producer != static_cast<int32_t>(index)) {
      return Err(ErrorCode::kInvalidArgument, "{}: {} names another producer", op.name, info.name);
    }
    written[static_cast<size_t>(out.id)] = true;
  }
  return {};
}

}  // namespace

Status VerifyPlan(const Plan& plan) {
  std::vector<bool> written(plan.values.size(), false);
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const ValueInfo& v = plan.values[i];
    const bool from_outside = v.kind == ValueKind::kWeight || v.kind == ValueKind::kBatch;
    written[i] = from_outside || (v.kind == ValueKind::kKv && v.producer < 0);
  }
  for (size_t i = 0; i < plan.ops.size(); ++i) LUCID_RETURN_IF_ERROR(VerifyOp(plan, i, written));
  if (!plan.logits.present() || !written[static_cast<size_t>(plan.logits.id)]) {
    return Err(ErrorCode::kInvalidArgument, "plan {}: no op writes the logits", plan.arch);
  }
  return {};
}

}  // namespace lucid
