#include "engine/fault_finder.h"

#include "base/finite.h"
#include "plan/op_table.h"

namespace lucid {

FaultFinder::FaultFinder(std::span<const int32_t> sequences) {
  for (const int32_t sequence : sequences) faults_[sequence] = std::nullopt;
}

void FaultFinder::AfterOp(const ObservedOp& observed) {
  const StepView& step = observed.step;
  for (const Value v : observed.op.outputs) {
    const ValueInfo& info = observed.plan.Info(v);
    if (info.kind != ValueKind::kActivation) continue;
    const std::span<const float> values = observed.Read(v);
    const auto width = static_cast<size_t>(info.shape.Width());
    const auto rows = static_cast<int32_t>(values.size() / width);
    for (int32_t row = 0; row < rows; ++row) {
      const int32_t token = rows == step.n_tokens ? row : step.output_rows[row];
      const auto found = faults_.find(step.sequence[token]);
      if (found == faults_.end() || found->second.has_value()) continue;
      if (!Computes(observed.op, step.phases[token])) continue;
      if (AllFinite(values.subspan(static_cast<size_t>(row) * width, width))) continue;
      found->second = Fault{info.name, step.positions[token]};
    }
  }
}

}  // namespace lucid
