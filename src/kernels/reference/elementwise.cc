// Ops that treat every value alone. GELU: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
// See reference.h.
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {

float Activate(Activation act, float x) {
  const double v = x;
  switch (act) {
    case Activation::kSilu:
      return static_cast<float>(v / (1.0 + std::exp(-v)));
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v);
      return static_cast<float>(0.5 * v * (1.0 + std::tanh(inner)));
    }
    case Activation::kGeluErf:
      return static_cast<float>(0.5 * v * std::erfc(-v / std::sqrt(2.0)));
    case Activation::kGeluQuick:
      return static_cast<float>(v / (1.0 + std::exp(-1.702 * v)));
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::kSigmoid:
      return static_cast<float>(1.0 / (1.0 + std::exp(-v)));
  }
  return 0;
}

float GluOne(const GluRule& glu, float gate, float up) {
  if (glu.limit > 0) {
    gate = gate > glu.limit ? glu.limit : gate;
    up = up > glu.limit ? glu.limit : up < -glu.limit ? -glu.limit : up;
    up += 1.0f;
  }
  return Activate(glu.act, gate) * up;
}

float SoftcapOne(float x, float cap) {
  return static_cast<float>(cap * std::tanh(static_cast<double>(x) / cap));
}

void Glu(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t row = share.begin; row < share.end; ++row) {
    const float of_row = a.one_gate ? Activate(a.act, a.gate[row]) : 0;
    for (int64_t i = row * a.dim; i < (row + 1) * a.dim; ++i) {
      a.y[i] = (a.one_gate ? of_row : Activate(a.act, a.gate[i])) * a.up[i];
    }
  }
}

void Activate(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ActivateArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t i = share.begin * a.dim; i < share.end * a.dim; ++i) {
    a.y[i] = Activate(a.act, a.x[i]);
  }
}

void Clamp(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ClampArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t i = share.begin * a.dim; i < share.end * a.dim; ++i) {
    const float x = a.x[i];  // NaN stays
    a.y[i] = x < -a.limit ? -a.limit : (x > a.limit ? a.limit : x);
  }
}

void Add(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AddArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t i = share.begin * a.dim; i < share.end * a.dim; ++i) a.y[i] = a.a[i] + a.b[i];
}

void Scale(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ScaleArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t i = share.begin * a.dim; i < share.end * a.dim; ++i) a.y[i] = a.x[i] * a.factor;
}

void Softcap(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const SoftcapArgs*>(args);
  const Share share = ShareOf(step.rows(a.rows), 1, thread);
  for (int64_t i = share.begin * a.dim; i < share.end * a.dim; ++i) {
    a.y[i] = SoftcapOne(a.x[i], a.cap);
  }
}

}  // namespace lucid::reference
