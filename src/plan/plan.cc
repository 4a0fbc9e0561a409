#include "plan/plan.h"

#include <charconv>

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

int32_t LayerOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  int32_t layer = -1;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  }
  return layer;
}

}  // namespace lucid
