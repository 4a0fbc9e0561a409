// The memory pass: first-fit placement of activations by lifetime.
#include <algorithm>
#include <vector>

#include "plan/pass.h"

namespace lucid {
namespace {

constexpr int64_t kAlign = 64;  // a cache line, and the widest vector register

struct Interval {
  int32_t value;
  size_t first_op, last_op;  // written by, last read by
  int64_t bytes;
};

std::vector<Interval> Lifetimes(const Plan& plan, const Sizes& sizes) {
  std::vector<Interval> intervals;
  std::vector<int> slot(plan.values.size(), -1);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const Value v : plan.ops[i].inputs) {
      if (v.present() && slot[static_cast<size_t>(v.id)] >= 0)
        intervals[slot[static_cast<size_t>(v.id)]].last_op = i;
    }
    for (const Value v : plan.ops[i].outputs) {
      const ValueInfo& info = plan.Info(v);
      if (info.kind != ValueKind::kActivation) continue;
      const int64_t bytes = (4 * info.shape.Elements(sizes) + kAlign - 1) / kAlign * kAlign;
      slot[static_cast<size_t>(v.id)] = static_cast<int>(intervals.size());
      intervals.push_back({v.id, i, i, bytes});
    }
  }
  // The caller reads the logits after the last op.
  if (const int s = slot[static_cast<size_t>(plan.logits.id)]; s >= 0)
    intervals[s].last_op = plan.ops.size();
  return intervals;
}

}  // namespace

MemoryPlan PlanMemory(const Plan& plan, const Sizes& max_sizes) {
  MemoryPlan memory;
  memory.offsets.assign(plan.values.size(), -1);
  std::vector<Interval> alive;  // placed and still needed, by offset
  for (const Interval& interval : Lifetimes(plan, max_sizes)) {
    // An op may still read its inputs while it writes its results, so only values last read before
    // it are gone.
    std::erase_if(alive, [&](const Interval& other) { return other.last_op < interval.first_op; });
    int64_t offset = 0;
    auto after = alive.begin();
    for (; after != alive.end(); ++after) {
      const int64_t start = memory.offsets[static_cast<size_t>(after->value)];
      if (offset + interval.bytes <= start) break;
      offset = start + after->bytes;
    }
    memory.offsets[static_cast<size_t>(interval.value)] = offset;
    memory.arena_bytes = std::max(memory.arena_bytes, offset + interval.bytes);
    alive.insert(after, interval);
  }
  return memory;
}

}  // namespace lucid
