// RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4) and layer norm (Ba et al. 2016,
// arXiv 1607.06450). See reference.h.
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

void LayerNorm(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LayerNormArgs*>(args);
  const int64_t per_row = a.width / a.dim;
  const Share share = ShareOf(step.rows(a.rows) * per_row, 1, thread);
  const auto n = static_cast<double>(a.dim);
  for (int64_t g = share.begin; g < share.end; ++g) {
    const float* x = a.x + g * a.dim;
    float* y = a.y + g * a.dim;
    const int64_t own = a.own_weights ? g % per_row * a.dim : 0;
    double mean = 0;
    for (int64_t i = 0; i < a.dim; ++i) mean += x[i];
    mean /= n;
    double squares = 0;
    for (int64_t i = 0; i < a.dim; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / n + a.eps);
    for (int64_t i = 0; i < a.dim; ++i) {
      const double weight = a.weight != nullptr ? a.weight[own + i] : 1.0;
      const double bias = a.bias != nullptr ? a.bias[own + i] : 0.0;
      y[i] = static_cast<float>((x[i] - mean) * scale * weight + bias);
    }
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
