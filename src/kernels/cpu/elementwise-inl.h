// Ops on single values, and the write to the KV cache. Work is cut by values: each depends on its
// own index alone.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kValuesUnit = 64;  // whole cache lines and vectors

inline Share ValueShare(const StepView& step, RowAxis axis, int64_t dim, const ThreadSlot& thread) {
  return ShareOf(step.rows(axis) * dim, kValuesUnit, thread);
}

void Glu(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  GluRange(a.act, a.gate, a.up, a.y, share.begin, share.end);
}

const char* RefuseGlu(const void* args) {
  return static_cast<const GluArgs*>(args)->one_gate ? "wants a gate for every value" : nullptr;
}

void Activate(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ActivateArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  LoopsOf(a.act).plain(a.x, a.y, share.begin, share.end);
}

void Clamp(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ClampArgs*>(args);
  const F high = Set(a.limit);
  const F low = Set(-a.limit);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const F x = LoadUpTo(a.x + i, n);  // NaN is less than nothing, and stays
        StoreUpTo(a.y + i, IfLess(x, low, low, IfLess(high, x, high, x)), n);
      });
}

void Add(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AddArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(a.y + i, LoadUpTo(a.a + i, n) + LoadUpTo(a.b + i, n), n);
      });
}

void Scale(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ScaleArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(a.y + i, LoadUpTo(a.x + i, n) * Set(a.factor), n);
      });
}

void Softcap(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const SoftcapArgs*>(args);
  const F cap = Set(a.cap);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(a.y + i, cap * Tanh(LoadUpTo(a.x + i, n) / cap), n);
      });
}

// A token's sum is one chain of fused multiply-adds over its experts, for each column.
void MixExperts(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const MixExpertsArgs*>(args);
  const Share share = ShareOf(a.dim, kValuesUnit, thread);
  for (int64_t t = 0; t < step.n_tokens; ++t) {
    const float* x = a.x + t * a.n_used * a.dim;
    const float* weights = a.weights + t * a.n_used;
    ForVectors(
        share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
          F sum = Zero();
          for (int64_t e = 0; e < a.n_used; ++e) {
            sum = Fma(Set(weights[e]), LoadUpTo(x + e * a.dim + i, n), sum);
          }
          StoreUpTo(a.y + t * a.dim + i, sum, n);
        });
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
