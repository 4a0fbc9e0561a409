#include "exec/key_rotation.h"

#include "plan/rope_spec.h"

namespace lucid {
namespace {

const RopeAttrs* RopeOf(const Op& op) {
  if (op.kind == OpKind::kRope) return &std::get<RopeAttrs>(op.attrs);
  if (op.kind == OpKind::kNormRope) return &std::get<NormRopeAttrs>(op.attrs).rope;
  return nullptr;
}

}  // namespace

std::vector<KeyRotation> KeyRotations(const Plan& plan) {
  std::vector<KeyRotation> rotations(plan.kv_layers.size());
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kKvStore) continue;
    const int32_t producer = plan.Info(op.inputs[1]).producer;
    if (producer < 0) continue;
    const RopeAttrs* rope = RopeOf(plan.ops[static_cast<size_t>(producer)]);
    if (rope == nullptr) continue;
    KeyRotation& rotation = rotations[static_cast<size_t>(plan.Info(op.inputs[0]).kv_layer)];
    rotation.inv_freq = InverseFrequencies(rope->spec, 0);
    rotation.style = rope->spec.style;
  }
  return rotations;
}

}  // namespace lucid
