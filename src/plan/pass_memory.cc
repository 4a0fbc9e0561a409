// The memory pass: first-fit placement of activations by lifetime. A plan has a few hundred values, so simple is fast enough.
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
      if (v.present() && slot[static_cast<size_t>(v.id)] >= 0) intervals[slot[static_cast<size_t>(v.id)]].last_op = i;
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
  if (const int s = slot[static_cast<size_t>(plan.logits.id)]; s >= 0) intervals[s].last_op = plan.ops.size();
  return intervals;
}

}  // namespace

MemoryPlan PlanMemory(const Plan& plan, const Sizes& max_sizes) {
  MemoryPlan memory;
  memory.offsets.assign(plan.values.size(), -1);
  std::vector<Interval> placed;
  for (const Interval& interval : Lifetimes(plan, max_sizes)) {
    std::vector<Interval> alive;
    for (const Interval& other : placed) {
      // An op may still read its inputs while it writes its results, so touching intervals overlap.
      if (other.last_op >= interval.first_op && other.first_op <= interval.last_op) alive.push_back(other);
    }
    std::sort(alive.begin(), alive.end(), [&](const Interval& a, const Interval& b) {
      return memory.offsets[static_cast<size_t>(a.value)] < memory.offsets[static_cast<size_t>(b.value)];
    });
    int64_t offset = 0;
    for (const Interval& other : alive) {
      const int64_t start = memory.offsets[static_cast<size_t>(other.value)];
      if (offset + interval.bytes <= start) break;
      offset = std::max(offset, start + other.bytes);
    }
    memory.offsets[static_cast<size_t>(interval.value)] = offset;
    memory.arena_bytes = std::max(memory.arena_bytes, offset + interval.bytes);
    placed.push_back(interval);
  }
  return memory;
}

}  // namespace lucid
