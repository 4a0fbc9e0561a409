// The KV cache: writing to it, and attention over it.
#include <algorithm>

#include "plan/ops/ops.h"

namespace lucid::ops {
namespace {

const KvSpec& Spec(const Plan& plan, Value kv) {
  return plan.kv_layers[static_cast<size_t>(plan.Info(kv).kv_layer)];
}

// Kivi2 keeps the newest positions, and everything in layers with a window, in float16 rows.
bool PacksBlocks(const KvSpec& spec, const Workload& work) {
  return !IsRowType(work.k_type) && spec.window == 0;
}

// It packs the blocks that are kKiviResidual positions old; a sequence of n tokens has so many.
int64_t PackedPositions(int64_t n, int64_t block_size) {
  return std::max<int64_t>(0, n - kKiviResidual) / block_size * block_size;
}

// Bytes of `positions` positions of one head, in packed blocks where the type has them.
int64_t PackedBytes(const KvSpec& spec, const Workload& work, int64_t positions) {
  const int64_t block = work.kv_block_size;
  const int64_t bytes = KvHeadBytes(work.k_type, true, spec.k_dim, block) +
                        KvHeadBytes(work.v_type, false, spec.v_dim, block);
  return positions / block * bytes;
}
// The same in rows.
int64_t RowsBytes(const KvSpec& spec, const Workload& work, int64_t positions) {
  const bool rows = IsRowType(work.k_type);
  int64_t bytes = KvRowBytes(rows ? work.k_type : KvType::kF16, spec.k_dim);
  if (spec.v_dim > 0) bytes += KvRowBytes(rows ? work.v_type : KvType::kF16, spec.v_dim);
  return positions * bytes;
}

// exp, subtraction, sum, division and scale of one score.
constexpr int64_t kSoftmaxFlopsPerScore = 5;

}  // namespace

Shapes InferKvStore(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 2));
  if (In(plan, op, 0).kind != ValueKind::kKv) {
    return Err(ErrorCode::kInvalidArgument, "{}: the first operand is no cache", op.name);
  }
  const KvSpec& spec = Spec(plan, op.inputs[0]);
  const int64_t v_width = op.inputs[2].present() ? In(plan, op, 2).shape.Width() : 0;
  if (In(plan, op, 1).shape.Width() != spec.heads * spec.k_dim ||
      v_width != spec.heads * spec.v_dim) {
    return Err(ErrorCode::kInvalidArgument,
               "{}: k {} and v of {} do not fit a cache of {} heads x ({}, {})", op.name,
               In(plan, op, 1).shape.ToString(), v_width, spec.heads, spec.k_dim, spec.v_dim);
  }
  return std::vector<Shape>{In(plan, op, 0).shape};
}

Cost CostKvStore(const Plan& plan, const Op& op, const Workload& work) {
  const KvSpec& spec = Spec(plan, op.inputs[0]);
  Cost cost;
  cost.kv_write_bytes = spec.heads * RowsBytes(spec, work, work.sizes().tokens);
  if (PacksBlocks(spec, work)) {  // blocks that have become old enough are read and packed
    for (const SequenceSpan& s : work.sequences) {
      const int64_t packed = PackedPositions(s.start + s.count, work.kv_block_size) -
                             PackedPositions(s.start, work.kv_block_size);
      cost.kv_read_bytes += spec.heads * RowsBytes(spec, work, packed);
      cost.kv_write_bytes += spec.heads * PackedBytes(spec, work, packed);
    }
  }
  cost.activation_bytes = Bytes(In(plan, op, 1), work);
  if (op.inputs[2].present()) cost.activation_bytes += Bytes(In(plan, op, 2), work);
  return cost;
}

Shapes InferAttention(const Plan& plan, const Op& op) {
  LUCID_RETURN_IF_ERROR(NeedInputs(op, 5));
  if (In(plan, op, 1).kind != ValueKind::kKv) {
    return Err(ErrorCode::kInvalidArgument, "{}: the second operand is no cache", op.name);
  }
  const KvSpec& spec = Spec(plan, op.inputs[1]);
  const auto& attrs = std::get<AttentionAttrs>(op.attrs);
  const int64_t n_heads = attrs.n_heads;
  if (n_heads <= 0 || n_heads % spec.heads != 0 ||
      In(plan, op, 0).shape.Width() != n_heads * spec.k_dim) {
    return Err(ErrorCode::kInvalidArgument, "{}: q {} does not share {} KV heads of {}", op.name,
               In(plan, op, 0).shape.ToString(), spec.heads, spec.k_dim);
  }
  if ((attrs.v_in_k > 0) != (spec.v_dim == 0) || attrs.v_in_k > spec.k_dim) {
    return Err(ErrorCode::kInvalidArgument, "{}: {} of the {} numbers of a key are no values",
               op.name, attrs.v_in_k, spec.k_dim);
  }
  if (op.inputs.size() > 5 && In(plan, op, 5).shape != Shape{n_heads}) {
    return Err(ErrorCode::kInvalidArgument, "{}: sinks {} of {} heads", op.name,
               In(plan, op, 5).shape.ToString(), n_heads);
  }
  return std::vector<Shape>{Shape{Symbol::kTokens, n_heads * (spec.v_dim + attrs.v_in_k)}};
}

Cost CostAttention(const Plan& plan, const Op& op, const Workload& all) {
  const KvSpec& spec = Spec(plan, op.inputs[1]);
  const auto& attrs = std::get<AttentionAttrs>(op.attrs);
  const Workload work = attrs.generated_only ? all.OfPhase(Phase::kGenerated) : all;
  const int64_t scores = attrs.n_heads * work.AttendedPairs(attrs.window);
  Cost cost;
  const int64_t bias = attrs.alibi_max_bias > 0 ? 2 : 0;  // a product and a sum
  cost.macs = scores * (spec.k_dim + spec.v_dim + attrs.v_in_k);
  cost.flops = 2 * cost.macs + scores * (kSoftmaxFlopsPerScore + bias);
  // Every key once, as the last token reads it.
  int64_t packed = 0;
  if (PacksBlocks(spec, work)) {
    for (const SequenceSpan& s : work.sequences) {
      packed += PackedPositions(s.start + s.count, work.kv_block_size);
    }
  }
  const int64_t rows = work.KeysRead(attrs.window) - packed;
  cost.kv_read_bytes = spec.heads * (RowsBytes(spec, work, rows) + PackedBytes(spec, work, packed));
  cost.activation_bytes = Bytes(In(plan, op, 0), work) + Bytes(plan.Info(op.outputs[0]), work);
  return cost;
}

}  // namespace lucid::ops
