#include "exec/attention_tap.h"

#include <cstddef>

#include "kernels/reference/reference.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

// `Args`: AttentionArgs or MlaArgs.
template <typename Args>
void AddQueries(const Args& args, size_t scratch_bytes, const ObservedOp& observed,
                AttentionMap& map) {
  const StepView& step = observed.step;
  std::vector<std::max_align_t> scratch(scratch_bytes / sizeof(std::max_align_t) + 1);
  auto* const memory = reinterpret_cast<std::byte*>(scratch.data());
  map.layer = args.kv.layer;
  map.n_heads = args.n_heads;
  for (int64_t t = 0; t < step.n_tokens; ++t) {
    const Phase phase = IsGenerated(step, t) ? Phase::kGenerated : Phase::kPrompt;
    if (!Computes(observed.op, phase)) continue;
    const reference::HeadWeights seen = reference::SeenKeys(args, step, t);
    AttentionQuery query{
        .sequence = step.sequence[t],
        .position = step.positions[t],
        .phase = phase,
        .first_key = seen.first,
        .n_keys = seen.count,
        .weights = std::vector<float>(static_cast<size_t>(map.n_heads * seen.count)),
        .sinks = {}};
    for (int64_t head = 0; head < map.n_heads; ++head) {
      const reference::HeadWeights of_head = reference::AttentionWeights(
          args, step, t, head, memory, query.weights.data() + head * seen.count);
      if constexpr (requires { args.sinks; }) {
        if (args.sinks != nullptr) query.sinks.push_back(of_head.sink);
      }
    }
    map.queries.push_back(std::move(query));
  }
}

bool IsAttention(OpKind kind) {
  return kind == OpKind::kAttention || kind == OpKind::kMlaAttention;
}

}  // namespace

std::optional<AttentionMap> AttentionWeightsOf(const ObservedOp& observed) {
  if (!IsAttention(observed.op.kind)) return std::nullopt;
  AttentionMap map;
  map.op = observed.op.name;
  if (observed.op.kind == OpKind::kAttention) {
    AddQueries(*static_cast<const AttentionArgs*>(observed.args),
               reference::AttentionScratch(observed.args, 0), observed, map);
  } else {
    AddQueries(*static_cast<const MlaArgs*>(observed.args),
               reference::MlaAttentionScratch(observed.args, 0), observed, map);
  }
  return map;
}

void AttentionTap::AfterOp(const ObservedOp& observed) {
  if (!IsAttention(observed.op.kind)) return;
  const Value kv = observed.op.inputs[1];
  if (layer_ >= 0 && observed.plan.Info(kv).kv_layer != layer_) return;
  std::optional<AttentionMap> map = AttentionWeightsOf(observed);
  if (map && !map->queries.empty()) maps_.push_back(*std::move(map));
}

}  // namespace lucid
