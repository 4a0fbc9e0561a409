// The normal equations are kept (5 x 5) and solved anew after each step: a few hundred operations,
// and weights that would come out negative can be left out exactly.
#include "sched/cost_model.h"

#include <algorithm>
#include <cmath>

namespace lucid {
namespace {

// What one unit of each feature is, so that all are of the order of 1 in a usual step.
constexpr std::array<double, 5> kUnits = {1.0, 1.0 / 64, 1.0 / 65536, 1.0 / 512, 1.0 / 262144};
// A step counts half after about 35 more that say the same.
constexpr double kMemory = 0.98;
// Keeps directions that no step has shown where they are.
constexpr double kRidge = 1e-6;

}  // namespace

CostModel::Vector CostModel::Features(const StepLoad& load) {
  return {kUnits[0], kUnits[1] * static_cast<double>(load.decode_tokens),
          kUnits[2] * static_cast<double>(load.decode_keys),
          kUnits[3] * static_cast<double>(load.prefill_tokens),
          kUnits[4] * static_cast<double>(load.prefill_pairs)};
}

void CostModel::Observe(const StepLoad& load, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  // Divided by the time, all steps count alike: what is wanted is a small relative error.
  Vector x = Features(load);
  for (double& value : x) value /= seconds;

  for (size_t i = 0; i < kFeatures; ++i) {
    for (size_t j = 0; j < kFeatures; ++j) {
      double& entry = information_[i][j];
      if (x[i] != 0) entry *= std::sqrt(kMemory);
      if (x[j] != 0) entry *= std::sqrt(kMemory);
    }
  }
  Vector target{};  // information * weights as believed so far, plus the new equation x . w = 1
  for (size_t i = 0; i < kFeatures; ++i) {
    for (size_t j = 0; j < kFeatures; ++j) target[i] += information_[i][j] * weights_[j];
    target[i] += kRidge * weights_[i] + x[i];
  }
  for (size_t i = 0; i < kFeatures; ++i) {
    for (size_t j = 0; j < kFeatures; ++j) information_[i][j] += x[i] * x[j];
  }
  Solve(target);
  ++observations_;
  most_prefill_tokens_ = std::max(most_prefill_tokens_, load.prefill_tokens);
}

// (information + ridge) weights = target over the features whose weights are not negative; the
// others are left out one by one.
void CostModel::Solve(const Vector& target) {
  std::array<bool, kFeatures> used;
  used.fill(true);
  for (int round = 0; round < kFeatures; ++round) {
    std::array<Vector, kFeatures> a = information_;
    Vector w = target;
    for (size_t i = 0; i < kFeatures; ++i) a[i][i] += kRidge;
    // Elimination without pivoting is stable: the matrix is symmetric and positive definite.
    for (size_t p = 0; p < kFeatures; ++p) {
      if (!used[p]) continue;
      for (size_t i = p + 1; i < kFeatures; ++i) {
        if (!used[i]) continue;
        const double factor = a[i][p] / a[p][p];
        for (size_t j = p; j < kFeatures; ++j) a[i][j] -= factor * a[p][j];
        w[i] -= factor * w[p];
      }
    }
    for (size_t p = kFeatures; p-- > 0;) {
      if (!used[p]) {
        w[p] = 0;
        continue;
      }
      for (size_t j = p + 1; j < kFeatures; ++j) w[p] -= used[j] ? a[p][j] * w[j] : 0.0;
      w[p] /= a[p][p];
    }
    const auto worst = std::min_element(w.begin(), w.end());
    if (*worst >= 0) {
      weights_ = w;
      return;
    }
    used[static_cast<size_t>(worst - w.begin())] = false;
  }
}

double CostModel::Predict(const StepLoad& load) const {
  const Vector x = Features(load);
  double seconds = 0;
  for (size_t i = 0; i < kFeatures; ++i) seconds += weights_[i] * x[i];
  return seconds;
}

}  // namespace lucid
