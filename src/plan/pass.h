// The passes over a plan: verify, fuse, memory (bind belongs to exec). Each can be left out; verify
// runs after each.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace lucid {

// Checks the whole plan: every operand defined before its use, every value written once, shapes as
// the op table infers them, each cache version used in order. An error names the op.
Status VerifyPlan(const Plan& plan);

// Replaces neighbours by fused ops, from a fixed table: linears of one input (q, k, v) ->
// linear_group; gate and up linears with their glu -> glu_linear; add + rms_norm -> add_rms_norm;
// head norm + rope -> norm_rope. Results keep their values, so names and taps stay; values that a
// fused op no longer writes (gate and up) are gone from the list. Linears become one op only where
// `alike` holds for their weights, all of them if it is empty.
using AlikeFn = std::function<bool(Value, Value)>;
Plan FusePlan(const Plan& plan, const AlikeFn& alike = {});

// Where every activation lies in one arena, reused as values die. Offsets are in bytes, aligned
// to 64.
struct MemoryPlan {
  std::vector<int64_t> offsets;  // by value id; -1 for values that are no activation
  int64_t arena_bytes = 0;
};
MemoryPlan PlanMemory(const Plan& plan, const Sizes& max_sizes);

}  // namespace lucid
