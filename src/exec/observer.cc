#include "exec/observer.h"

#include <set>
#include <utility>

namespace lucid {

std::optional<int64_t> TouchedExperts(const ObservedOp& observed) {
  const OpKind kind = observed.op.kind;
  if (kind != OpKind::kExpertGlu && kind != OpKind::kExpertLinear) return std::nullopt;
  const std::span<const float> chosen = observed.Read(observed.op.inputs[1]);
  return std::ssize(std::set<float>(chosen.begin(), chosen.end()));
}

Cost ExecutedCost(const ObservedOp& observed, Workload work) {
  work.touched_experts = TouchedExperts(observed);
  return Info(observed.op.kind).cost(observed.plan, observed.op, work);
}

}  // namespace lucid
