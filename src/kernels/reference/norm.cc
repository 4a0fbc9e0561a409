// RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4). See reference.h.
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {

void NormalizeGroup(const float* x, const float* weight, float* y, int64_t dim, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
  const auto scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(dim) + eps));
  for (int64_t i = 0; i < dim; ++i) y[i] = x[i] * scale * (weight != nullptr ? weight[i] : 1.0f);
}

void RmsNorm(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const RmsNormArgs*>(args);
  const int64_t groups = step.rows(a.rows) * (a.width / a.dim);
  const Share share = ShareOf(groups, 1, thread);
  for (int64_t g = share.begin; g < share.end; ++g) {
    NormalizeGroup(a.x + g * a.dim, a.weight, a.y + g * a.dim, a.dim, a.eps);
  }
}

void AddRmsNorm(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AddRmsNormArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const int64_t at = r * a.dim;
    for (int64_t i = at; i < at + a.dim; ++i) a.sum[i] = a.x[i] + a.residual[i];
    NormalizeGroup(a.sum + at, a.weight, a.y + at, a.dim, a.eps);
  }
}

}  // namespace lucid::reference
