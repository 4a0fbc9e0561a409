// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache keeps a latent vector and
// a rotated part for each place. Given tokens take the expanded form, one op; generated ones the
// absorbed form, made of products with every head's matrix and ordinary attention over the latent
// cache.
#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

constexpr int64_t kSoftmaxFlopsPerScore = 5;  // as CostAttention

bool IsStack(const ValueInfo& v) {
  return v.kind == ValueKind::kWeight && v.shape.rank == 3;
}

}  // namespace

Shapes InferHeadLinear(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  const ValueInfo& x = In(plan, op, 0);
  const ValueInfo& w = In(plan, op, 1);
  if (!IsStack(w) || x.shape.Width() % w.shape[0].size != 0 ||
      x.shape.Width() / w.shape[0].size < w.shape[2].size) {
    return Err(ErrorCode::kInvalidArgument, "{}: rows {} do not fit the heads of {}", op.name,
               x.shape.ToString(), w.shape.ToString());
  }
  return std::vector<Shape>{Shape{x.shape[0], w.shape[0], w.shape[1]}};
}

Cost CostHeadLinear(const Plan& plan, const Op& op, const Workload& all) {
  const bool part = std::get<HeadLinearAttrs>(op.attrs).generated_only;
  const Workload work = part ? all.OfPhase(Phase::kGenerated) : all;
  Cost cost;
  if (work.sequences.empty()) return cost;
  cost.macs = work.sizes().tokens * In(plan, op, 1).shape.Elements({});
  cost.flops = 2 * cost.macs;
  cost.weight_bytes = WeightBytes(plan, op.inputs[1], work);
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

Shapes InferConcat(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  const auto& attrs = std::get<ConcatAttrs>(op.attrs);
  const Shape& a = In(plan, op, 0).shape;
  const Shape& b = In(plan, op, 1).shape;
  if (attrs.parts < 1 || a[0] != b[0] || a.Width() % attrs.parts != 0 ||
      b.Width() % attrs.parts != 0 || attrs.b_dim > b.Width() / attrs.parts) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} and {} are not {} rows of a token", op.name,
               a.ToString(), b.ToString(), attrs.parts);
  }
  return std::vector<Shape>{Shape{a[0], attrs.parts, a.Width() / attrs.parts + attrs.b_dim}};
}

Cost CostConcat(const Plan& plan, const Op& op, const Workload& all) {
  const bool part = std::get<ConcatAttrs>(op.attrs).generated_only;
  Cost cost;
  cost.activation_bytes =
      2 * Bytes(plan.Info(op.outputs[0]), part ? all.OfPhase(Phase::kGenerated) : all);
  return cost;
}

Shapes InferMlaAttention(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 7));
  const auto& attrs = std::get<MlaAttrs>(op.attrs);
  const ValueInfo& kv = In(plan, op, 1);
  const ValueInfo& w_k = In(plan, op, 2);
  const ValueInfo& w_v = In(plan, op, 3);
  if (kv.kind != ValueKind::kKv || !IsStack(w_k) || !IsStack(w_v)) {
    return Err(ErrorCode::kInvalidArgument, "{}: wants a cache and two stacks of matrices",
               op.name);
  }
  const KvSpec& spec = plan.kv_layers[static_cast<size_t>(kv.kv_layer)];
  const int64_t lora = w_k.shape[1].size;
  if (spec.heads != 1 || spec.v_dim != 0 || spec.k_dim != lora + attrs.rope_dim ||
      spec.window != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "{}: the cache does not keep latent vectors of {} and {}", op.name, lora,
               attrs.rope_dim);
  }
  if (w_k.shape[0].size != attrs.n_heads || w_v.shape[0].size != attrs.n_heads ||
      w_v.shape[2].size != lora ||
      In(plan, op, 0).shape.Width() != attrs.n_heads * (w_k.shape[2].size + attrs.rope_dim)) {
    return Err(ErrorCode::kInvalidArgument, "{}: q {} does not fit the matrices {} and {}", op.name,
               In(plan, op, 0).shape.ToString(), w_k.shape.ToString(), w_v.shape.ToString());
  }
  return std::vector<Shape>{Shape{In(plan, op, 0).shape[0], w_v.shape[0], w_v.shape[1]}};
}

Cost CostMlaAttention(const Plan& plan, const Op& op, const Workload& all) {
  const Workload work = all.OfPhase(Phase::kPrompt);
  Cost cost;
  if (work.sequences.empty()) return cost;
  const auto& attrs = std::get<MlaAttrs>(op.attrs);
  const KvSpec& spec = plan.kv_layers[static_cast<size_t>(In(plan, op, 1).kv_layer)];
  const int64_t nope = In(plan, op, 2).shape[2].size;
  const int64_t v_dim = In(plan, op, 3).shape[1].size;
  const int64_t scores = attrs.n_heads * work.AttendedPairs(0);
  const int64_t matrices = In(plan, op, 2).shape.Elements({}) + In(plan, op, 3).shape.Elements({});
  cost.macs = work.KeysRead(0) * matrices + scores * (nope + attrs.rope_dim + v_dim);
  cost.flops = 2 * cost.macs + scores * kSoftmaxFlopsPerScore;
  cost.weight_bytes = WeightBytes(plan, op.inputs[2], work) + WeightBytes(plan, op.inputs[3], work);
  cost.kv_read_bytes = work.KeysRead(0) * KvRowBytes(work.k_type, spec.k_dim);
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

Cost CostByPhase(const Plan& plan, const Op& op, const Workload& work) {
  Cost cost;
  cost.activation_bytes = 2 * Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

}  // namespace lucid::ops
