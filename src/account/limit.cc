#include "account/limit.h"

#include <algorithm>

#include "models/load.h"

namespace lucid {
namespace {

struct StepTime {
  double by_memory = 0, by_arithmetic = 0;
  double seconds() const { return std::max(by_memory, by_arithmetic); }
};

StepTime LeastTime(const StepNeeds& needs, const MachineSpeed& speed) {
  return {static_cast<double>(needs.weight_bytes + needs.kv_bytes) / speed.bytes_per_second,
          static_cast<double>(needs.macs) / speed.macs_per_second};
}

// Of a long generation so many steps are looked at, evenly spaced: what they need hardly differs
// from step to step.
constexpr int64_t kMostSteps = 64;

}  // namespace

StepNeeds NeedsOf(const Plan& plan, const Workload& work) {
  StepNeeds needs;
  for (const Op& op : plan.ops) {
    const Cost cost = Info(op.kind).cost(plan, op, work);
    needs.weight_bytes += cost.weight_bytes;
    needs.kv_bytes += cost.kv_read_bytes;
    needs.macs += cost.macs;
  }
  return needs;
}

int64_t TokenBytes(const Plan& plan, std::span<const DType> weight_dtypes) {
  Workload work;
  work.sequences = {{.start = 0, .count = 1}};
  work.outputs = 1;
  work.weight_dtypes = weight_dtypes;
  return NeedsOf(plan, work).weight_bytes;
}

Result<int64_t> TokenBytesOfModel(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const Model model, LoadModel(path));
  return TokenBytes(model.plan, model.weights.dtypes());
}

std::optional<ArithmeticPeak> BestArithmetic(std::span<const ComputePeak> peaks, int threads,
                                             Factors least) {
  std::optional<ArithmeticPeak> best;
  for (const ComputePeak& peak : peaks) {
    const bool bytes = peak.numbers == "int8";
    const bool enough = bytes ? least >= Factors::kInt8Pairs
                              : peak.numbers == "float32" || least >= Factors::kBfloat16;
    const bool halved = bytes && least == Factors::kInt8Pairs;
    const double rate = halved ? peak.macs_per_second / 2 : peak.macs_per_second;
    if (peak.threads != threads || !enough || (best && rate <= best->macs_per_second)) continue;
    best = {rate, peak.numbers + (halved ? " x 2 " : " ") + peak.isa};
  }
  return best;
}

SpeedLimit PromptLimit(const Plan& plan, const Workload& work, const MachineSpeed& speed) {
  SpeedLimit limit;
  limit.needs = NeedsOf(plan, work);
  const StepTime time = LeastTime(limit.needs, speed);
  limit.by_memory = time.by_memory > time.by_arithmetic;
  limit.tokens_per_second = static_cast<double>(work.sizes().tokens) / time.seconds();
  return limit;
}

SpeedLimit GenerationLimit(const Plan& plan, const Workload& first, int64_t n_steps,
                           const MachineSpeed& speed) {
  const int64_t looked_at = std::min(n_steps, kMostSteps);
  StepNeeds sum;
  StepTime time;
  double seconds = 0;
  for (int64_t i = 0; i < looked_at; ++i) {
    Workload work = first;
    for (SequenceSpan& span : work.sequences) {
      span.start += looked_at == n_steps ? i : (2 * i + 1) * n_steps / (2 * looked_at);
    }
    const StepNeeds needs = NeedsOf(plan, work);
    sum.weight_bytes += needs.weight_bytes;
    sum.kv_bytes += needs.kv_bytes;
    sum.macs += needs.macs;
    const StepTime step = LeastTime(needs, speed);
    time.by_memory += step.by_memory;
    time.by_arithmetic += step.by_arithmetic;
    seconds += step.seconds();
  }
  SpeedLimit limit;
  limit.needs = {sum.weight_bytes / looked_at, sum.kv_bytes / looked_at, sum.macs / looked_at};
  limit.by_memory = time.by_memory > time.by_arithmetic;
  limit.tokens_per_second = static_cast<double>(looked_at * first.sizes().tokens) / seconds;
  return limit;
}

}  // namespace lucid
