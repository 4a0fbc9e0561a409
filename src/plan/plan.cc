#include "plan/plan.h"

namespace lucid {

std::vector<Value> Plan::Weights() const {
  std::vector<Value> weights;
  std::vector<bool> seen(values.size(), false);
  for (const Op& op : ops) {
    for (const Value v : op.inputs) {
      if (!v.present() || seen[static_cast<size_t>(v.id)] || Info(v).kind != ValueKind::kWeight)
        continue;
      seen[static_cast<size_t>(v.id)] = true;
      weights.push_back(v);
    }
  }
  return weights;
}

}  // namespace lucid
