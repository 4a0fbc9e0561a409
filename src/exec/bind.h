// Bind, the last pass: ops become calls. Each op gets the arguments of its kernel (pointers into
// weights, cache and arena) and the best kernel that takes them; a step then only walks the list.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "exec/packed_weights.h"
#include "kernels/args.h"
#include "kernels/table.h"
#include "kv/kv_storage.h"
#include "models/weights.h"
#include "plan/pass.h"
#include "plan/plan.h"

namespace lucid {

using KernelArgs = std::variant<EmbedArgs, RmsNormArgs, LayerNormArgs, AddRmsNormArgs, LinearArgs,
                                LinearGroupArgs, GluArgs, GluLinearArgs, RopeArgs, NormRopeArgs,
                                KvStoreArgs, AttentionArgs, AddArgs, ActivateArgs, ClampArgs,
                                ScaleArgs, SoftcapArgs, GatherRowsArgs, RouteArgs, ExpertGluArgs,
                                ExpertLinearArgs, MixExpertsArgs, MlaArgs, ConcatArgs, ByPhaseArgs>;

struct BoundOp {
  KernelFn fn = nullptr;
  PrepareFn prepare = nullptr;
  WarmFn warm = nullptr;
  const void* args = nullptr;  // points into BoundPlan::args
  const Kernel* kernel = nullptr;
  std::string refused;  // better kernels that did not take the arguments, and why
};

struct BoundPlan {
  std::vector<BoundOp> ops;               // one per op of the plan
  std::deque<KernelArgs> args;            // addresses stay
  std::deque<std::vector<float>> tables;  // of rope frequencies and ALiBi slopes
  size_t scratch_bytes = 0;               // per thread
  size_t shared_bytes = 0;                // of all threads together
};

struct BindContext {
  const Plan& plan;
  const Weights& weights;
  const PackedWeights& packed;
  float error_budget = 0;  // of LinearArgs
  bool exact = false;      // of LinearArgs and AttentionArgs
  const KvStorage& kv;
  const MemoryPlan& memory;
  std::byte* arena = nullptr;
  int64_t max_rows = 0;  // most tokens or outputs in a step
  std::span<const KernelTable* const> tables;
};
BoundPlan Bind(const BindContext& context);

}  // namespace lucid
