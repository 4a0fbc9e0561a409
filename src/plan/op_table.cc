#include "plan/op_table.h"

#include <algorithm>
#include <array>

#include "plan/ops/ops.h"

namespace lucid {
namespace {

constexpr std::array kOps = {
    OpInfo{OpKind::kEmbed, "embed", "table indices", "the row of the table for each index",
           ops::InferEmbed, ops::CostEmbed},
    OpInfo{OpKind::kRmsNorm, "rms_norm", "x weight", "x / sqrt(mean(x^2) + eps) * weight",
           ops::InferRmsNorm, ops::CostRmsNorm},
    OpInfo{OpKind::kLayerNorm, "layer_norm", "x weight? bias?",
           "(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias", ops::InferLayerNorm,
           ops::CostLayerNorm},
    OpInfo{OpKind::kLinear, "linear", "x w bias?", "x W^T (+ bias)", ops::InferLinear,
           ops::CostLinear},
    OpInfo{OpKind::kRope, "rope", "x positions",
           "pairs (a, b) of a head become (a cos t - b sin t, a sin t + b cos t), t = position * "
           "frequency",
           ops::InferRope, ops::CostRope},
    OpInfo{OpKind::kKvStore, "kv_store", "kv k v? positions sequence block_tables",
           "keys and values of the new tokens, written behind those of earlier ones",
           ops::InferKvStore, ops::CostKvStore},
    OpInfo{OpKind::kAttention, "attention", "q kv positions sequence block_tables sinks?",
           "softmax(Q K^T * scale) V over the keys up to the own position", ops::InferAttention,
           ops::CostAttention},
    OpInfo{OpKind::kAdd, "add", "a b", "a + b", ops::InferSameShapes, ops::CostAdd},
    OpInfo{OpKind::kGlu, "glu", "gate up", "act(gate) * up", ops::InferGlu, ops::CostGlu},
    OpInfo{OpKind::kActivate, "activate", "x", "act(x)", ops::InferSameShapes, ops::CostActivate},
    OpInfo{OpKind::kScale, "scale", "x", "x * factor", ops::InferSameShapes, ops::CostScale},
    OpInfo{OpKind::kClamp, "clamp", "x", "x, at least -limit and at most limit",
           ops::InferSameShapes, ops::CostClamp},
    OpInfo{OpKind::kSoftcap, "softcap", "x", "cap * tanh(x / cap)", ops::InferSameShapes,
           ops::CostSoftcap},
    OpInfo{OpKind::kGatherRows, "gather_rows", "x output_rows", "the rows whose logits are wanted",
           ops::InferGatherRows, ops::CostGatherRows},
    OpInfo{OpKind::kRoute, "route", "logits bias?",
           "a score for each expert; the k best, and what each counts", ops::InferRoute,
           ops::CostRoute},
    OpInfo{OpKind::kExpertGlu, "expert_glu", "x experts w_gate bias_gate? w_up bias_up?",
           "for each of the k experts: act(x W_gate^T) * (x W_up^T)", ops::InferExpertGlu,
           ops::CostExpertGlu},
    OpInfo{OpKind::kExpertLinear, "expert_linear", "x experts w bias?",
           "for each of the k experts: x W^T", ops::InferExpertLinear, ops::CostExpertLinear},
    OpInfo{OpKind::kMixExperts, "mix_experts", "x weights", "sum over the k experts of weight * x",
           ops::InferMixExperts, ops::CostMixExperts},
    OpInfo{OpKind::kHeadLinear, "head_linear", "x w", "for each head: x W^T", ops::InferHeadLinear,
           ops::CostHeadLinear},
    OpInfo{OpKind::kConcat, "concat", "a b", "a and the last values of b, side by side",
           ops::InferConcat, ops::CostConcat},
    OpInfo{OpKind::kMlaAttention, "mla_attention", "q kv w_k w_v positions sequence block_tables",
           "softmax(Q K^T * scale) V, where each head makes K and V of the cached latents",
           ops::InferMlaAttention, ops::CostMlaAttention},
    OpInfo{OpKind::kByPhase, "by_phase", "prompt generated",
           "rows of given tokens from one form, rows of generated tokens from the other",
           ops::InferSameShapes, ops::CostByPhase},
    OpInfo{OpKind::kLinearGroup, "linear_group", "x (w bias?)*", "x W^T (+ bias) with several W",
           ops::InferLinearGroup, ops::CostLinearGroup},
    OpInfo{OpKind::kGluLinear, "glu_linear", "x w_gate bias_gate? w_up bias_up?",
           "act(x W_gate^T) * (x W_up^T)", ops::InferGluLinear, ops::CostGluLinear},
    OpInfo{OpKind::kAddRmsNorm, "add_rms_norm", "a b weight",
           "s = a + b; s / sqrt(mean(s^2) + eps) * weight", ops::InferAddRmsNorm,
           ops::CostAddRmsNorm},
    OpInfo{OpKind::kNormRope, "norm_rope", "x weight positions",
           "RMS norm of every head, then each pair turned by position as in rope",
           ops::InferNormRope, ops::CostNormRope},
};

// Rows lie at the index of their kind.
static_assert([] {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<size_t>(kOps[i].kind) != i) return false;
  }
  return true;
}());

}  // namespace

const OpInfo& Info(OpKind kind) {
  return kOps[static_cast<size_t>(kind)];
}

bool Computes(const Op& op, Phase phase) {
  if (op.kind == OpKind::kMlaAttention) return phase == Phase::kPrompt;
  bool generated_only = false;
  if (const auto* a = std::get_if<AttentionAttrs>(&op.attrs)) generated_only = a->generated_only;
  if (const auto* a = std::get_if<HeadLinearAttrs>(&op.attrs)) generated_only = a->generated_only;
  if (const auto* a = std::get_if<ConcatAttrs>(&op.attrs)) generated_only = a->generated_only;
  return !generated_only || phase == Phase::kGenerated;
}

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  macs += other.macs;
  weight_bytes += other.weight_bytes;
  kv_read_bytes += other.kv_read_bytes;
  kv_write_bytes += other.kv_write_bytes;
  activation_bytes += other.activation_bytes;
  return *this;
}

Sizes Workload::sizes() const {
  Sizes sizes;
  for (const SequenceSpan& s : sequences) {
    sizes.tokens += s.count;
    sizes.context = std::max(sizes.context, s.start + s.count);
  }
  sizes.outputs = outputs;
  sizes.sequences = static_cast<int64_t>(sequences.size());
  return sizes;
}

bool Workload::IsGenerated(const SequenceSpan& span) {
  return span.count == 1 && span.start > 0;
}

Workload Workload::OfPhase(Phase phase) const {
  Workload part = *this;
  std::erase_if(part.sequences, [phase](const SequenceSpan& span) {
    return IsGenerated(span) != (phase == Phase::kGenerated);
  });
  return part;
}

int64_t Workload::AttendedPairs(int64_t window) const {
  int64_t pairs = 0;
  for (const SequenceSpan& s : sequences) {
    const int64_t end = s.start + s.count;
    if (!causal) {
      pairs += s.count * (window > 0 ? std::min(end, window) : end);
      continue;
    }
    // The first tokens see all before them, the others as much as the window.
    const int64_t whole = window > 0 ? std::clamp<int64_t>(window - s.start, 0, s.count) : s.count;
    pairs += whole * s.start + whole * (whole + 1) / 2 + (s.count - whole) * window;
  }
  return pairs;
}

int64_t Workload::KeysRead(int64_t window) const {
  int64_t keys = 0;
  for (const SequenceSpan& s : sequences) {
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, s.start - window + 1) : 0;
    keys += s.start + s.count - oldest;
  }
  return keys;
}

}  // namespace lucid
