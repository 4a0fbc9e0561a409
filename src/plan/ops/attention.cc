// The KV cache: writing to it, and attention over it.
#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

const KvSpec& Spec(const Plan& plan, Value kv) {
  return plan.kv_layers[static_cast<size_t>(plan.Info(kv).kv_layer)];
}

// exp, subtraction, sum, division and scale of one score.
constexpr int64_t kSoftmaxFlopsPerScore = 5;

}  // namespace

Shapes InferKvStore(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 6));
  if (In(plan, op, 0).kind != ValueKind::kKv) {
    return Err(ErrorCode::kInvalidArgument, "{}: the first operand is no cache", op.name);
  }
  const KvSpec& spec = Spec(plan, op.inputs[0]);
  if (In(plan, op, 1).shape.Width() != spec.heads * spec.k_dim ||
      In(plan, op, 2).shape.Width() != spec.heads * spec.v_dim) {
    return Err(ErrorCode::kInvalidArgument,
               "{}: k {} and v {} do not fit a cache of {} heads x ({}, {})", op.name,
               In(plan, op, 1).shape.ToString(), In(plan, op, 2).shape.ToString(), spec.heads,
               spec.k_dim, spec.v_dim);
  }
  return std::vector<Shape>{In(plan, op, 0).shape};
}

Cost CostKvStore(const Plan& plan, const Op& op, const Workload& work) {
  const KvSpec& spec = Spec(plan, op.inputs[0]);
  const int64_t tokens = work.sizes().tokens;
  Cost cost;
  cost.kv_write_bytes = tokens * spec.heads *
                        (RowBytes(work.k_dtype, spec.k_dim) + RowBytes(work.v_dtype, spec.v_dim));
  cost.activation_bytes = Bytes(In(plan, op, 1), work) + Bytes(In(plan, op, 2), work);
  return cost;
}

Shapes InferAttention(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 5));
  if (In(plan, op, 1).kind != ValueKind::kKv) {
    return Err(ErrorCode::kInvalidArgument, "{}: the second operand is no cache", op.name);
  }
  const KvSpec& spec = Spec(plan, op.inputs[1]);
  const int64_t n_heads = std::get<AttentionAttrs>(op.attrs).n_heads;
  if (n_heads <= 0 || n_heads % spec.heads != 0 ||
      In(plan, op, 0).shape.Width() != n_heads * spec.k_dim) {
    return Err(ErrorCode::kInvalidArgument, "{}: q {} does not share {} KV heads of {}", op.name,
               In(plan, op, 0).shape.ToString(), spec.heads, spec.k_dim);
  }
  return std::vector<Shape>{Shape{Symbol::kTokens, n_heads * spec.v_dim}};
}

Cost CostAttention(const Plan& plan, const Op& op, const Workload& work) {
  const KvSpec& spec = Spec(plan, op.inputs[1]);
  const auto& attrs = std::get<AttentionAttrs>(op.attrs);
  const int64_t scores = attrs.n_heads * work.AttendedPairs(attrs.window);
  Cost cost;
  cost.flops = scores * (2 * spec.k_dim + 2 * spec.v_dim + kSoftmaxFlopsPerScore);
  cost.kv_read_bytes = work.KeysRead(attrs.window) * spec.heads *
                       (RowBytes(work.k_dtype, spec.k_dim) + RowBytes(work.v_dtype, spec.v_dim));
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

}  // namespace lucid::ops
