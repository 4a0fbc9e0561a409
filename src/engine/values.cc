#include "engine/values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/op_table.h"

namespace lucid {
namespace {

constexpr int64_t kWholeRow = 8;  // numbers of a row that is shown whole
constexpr int64_t kFirst = 4, kLast = 2;
constexpr int64_t kAllRows = 4;    // rows of a value that is shown whole
constexpr int64_t kFirstRows = 2;  // else these and the last one

ValueRow SomeOf(std::span<const float> row, int64_t index) {
  ValueRow some{.index = index, .head = {}, .tail = {}};
  if (std::ssize(row) <= kWholeRow) {
    some.head.assign(row.begin(), row.end());
    return some;
  }
  some.head.assign(row.begin(), row.begin() + kFirst);
  some.tail.assign(row.end() - kLast, row.end());
  return some;
}

void Summarise(std::span<const float> numbers, ValueSummary& summary) {
  double sum = 0, squares = 0;
  summary.min = INFINITY;
  summary.max = -INFINITY;
  for (const float x : numbers) {
    if (!std::isfinite(x)) {
      ++summary.not_finite;
      continue;
    }
    summary.min = std::min(summary.min, x);
    summary.max = std::max(summary.max, x);
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const auto n = static_cast<double>(std::ssize(numbers) - summary.not_finite);
  summary.mean = n > 0 ? sum / n : 0;
  summary.rms = n > 0 ? std::sqrt(squares / n) : 0;
  const int64_t width = std::ssize(numbers) / summary.rows;
  for (int64_t r = 0; r < summary.rows; ++r) {
    const bool shown = summary.rows <= kAllRows || r < kFirstRows || r == summary.rows - 1;
    const auto at = static_cast<size_t>(r * width);
    if (shown) summary.some.push_back(SomeOf(numbers.subspan(at, static_cast<size_t>(width)), r));
  }
}

bool HasTokens(const ObservedOp& observed) {
  const StepView& step = observed.step;
  for (int64_t t = 0; t < step.n_tokens; ++t) {
    const Phase phase = IsGenerated(step, t) ? Phase::kGenerated : Phase::kPrompt;
    if (Computes(observed.op, phase)) return true;
  }
  return false;
}

}  // namespace

void ValueRecorder::AfterOp(const ObservedOp& observed) {
  if (!HasTokens(observed)) return;
  tap_.AfterOp(observed);
  Sizes sizes;
  sizes.tokens = observed.step.n_tokens;
  sizes.outputs = observed.step.n_outputs;
  for (const Value v : observed.op.outputs) {
    const ValueInfo& info = observed.plan.Info(v);
    if (info.kind != ValueKind::kActivation) continue;
    ValueSummary summary{.op = observed.op.name,
                         .name = info.name,
                         .shape = info.shape.ToString(sizes),
                         .rows = info.shape[0].Bind(sizes),
                         .some = {}};
    if (summary.rows == 0) continue;
    Summarise(observed.Read(v), summary);
    values_.push_back(std::move(summary));
  }
}

}  // namespace lucid
