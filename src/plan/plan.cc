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

Value Plan::FindActivation(std::string_view name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].kind == ValueKind::kActivation && values[i].name == name) {
      return Value{static_cast<int32_t>(i)};
    }
  }
  return {};
}

int64_t KvBytesPerToken(const Plan& plan, int64_t k_bytes, int64_t v_bytes) {
  int64_t bytes = 0;
  for (const KvSpec& kv : plan.kv_layers)
    bytes += kv.heads * (kv.k_dim * k_bytes + kv.v_dim * v_bytes);
  return bytes;
}

}  // namespace lucid
