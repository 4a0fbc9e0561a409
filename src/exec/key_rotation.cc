#include "exec/key_rotation.h"

#include <span>

#include "plan/rope_spec.h"

namespace lucid {
namespace {

struct Rope {
  const RopeAttrs* attrs = nullptr;
  Value factors;
};

Rope RopeOf(const Op& op) {
  if (op.kind == OpKind::kRope) return {&std::get<RopeAttrs>(op.attrs), op.inputs[2]};
  if (op.kind == OpKind::kNormRope) return {&std::get<NormRopeAttrs>(op.attrs).rope, op.inputs[3]};
  return {};
}

}  // namespace

std::vector<KeyRotation> KeyRotations(const Plan& plan, const Weights& weights) {
  std::vector<KeyRotation> rotations(plan.kv_layers.size());
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::kKvStore) continue;
    const int32_t producer = plan.Info(op.inputs[1]).producer;
    if (producer < 0) continue;
    const Rope rope = RopeOf(plan.ops[static_cast<size_t>(producer)]);
    if (rope.attrs == nullptr) continue;
    const RopeSpec& spec = rope.attrs->spec;
    std::span<const float> factors;
    if (rope.factors.present()) {
      factors = {weights[rope.factors].f32(), static_cast<size_t>(spec.rotary_dim / 2)};
    }
    KeyRotation& rotation = rotations[static_cast<size_t>(plan.Info(op.inputs[0]).kv_layer)];
    rotation.inv_freq = InverseFrequencies(spec, 0, factors);
    rotation.style = spec.style;
  }
  return rotations;
}

}  // namespace lucid
