// RMS norm, alone and after a residual sum, and layer norm.
//
// Values and squares are summed as kLanes partial sums over ascending indices, then through the
// tree of Sum4.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// y = x * rsqrt(mean(x^2) + eps) * weight. In place allowed; weight may be nullptr.
inline void Normalize(const float* x, const float* weight, float* y, int64_t dim, float eps) {
  F squares = Zero();
  ForVectors(
      0, dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const F v = LoadUpTo(x + i, n);
        squares = Fma(v, v, squares);
      });
  const float scale = 1.0f / __builtin_sqrtf(SumLanes(squares) / static_cast<float>(dim) + eps);
  ForVectors(
      0, dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        F v = LoadUpTo(x + i, n) * Set(scale);
        if (weight != nullptr) v = v * LoadUpTo(weight + i, n);
        StoreUpTo(y + i, v, n);
      });
}

void RmsNorm(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const RmsNormArgs*>(args);
  const int64_t rows = step.rows(a.rows);
  const Share share = ShareOf(rows * (a.width / a.dim), 1, thread);
  for (int64_t g = share.begin; g < share.end; ++g) {
    Normalize(a.x + g * a.dim, a.weight, a.y + g * a.dim, a.dim, a.eps);
  }
}

// One group of LayerNormArgs: the mean first, then the squares of what differs from it, so that a
// large mean costs no digits.
inline void NormalizeLayer(const float* x, const float* weight, const float* bias, float* y,
                           int64_t dim, float eps) {
  F sums = Zero();
  ForVectors(
      0, dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        sums = sums + LoadUpTo(x + i, n);
      });
  const F mean = Set(SumLanes(sums) / static_cast<float>(dim));
  F squares = Zero();
  ForVectors(
      0, dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        F v = LoadUpTo(x + i, n) - mean;
        if (n < kLanes) v = KeepLanes(v, 0, n, Zero());
        squares = Fma(v, v, squares);
      });
  const float scale = 1.0f / __builtin_sqrtf(SumLanes(squares) / static_cast<float>(dim) + eps);
  ForVectors(
      0, dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        F v = (LoadUpTo(x + i, n) - mean) * Set(scale);
        if (weight != nullptr) v = v * LoadUpTo(weight + i, n);
        if (bias != nullptr) v = v + LoadUpTo(bias + i, n);
        StoreUpTo(y + i, v, n);
      });
}

void LayerNorm(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LayerNormArgs*>(args);
  const int64_t rows = step.rows(a.rows);
  const int64_t per_row = a.width / a.dim;
  const Share share = ShareOf(rows * per_row, 1, thread);
  for (int64_t g = share.begin; g < share.end; ++g) {
    const int64_t own = a.own_weights ? g % per_row * a.dim : 0;
    NormalizeLayer(a.x + g * a.dim, a.weight != nullptr ? a.weight + own : nullptr,
                   a.bias != nullptr ? a.bias + own : nullptr, a.y + g * a.dim, a.dim, a.eps);
  }
}

void AddRmsNorm(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AddRmsNormArgs*>(args);
  const int64_t rows = step.rows(a.rows);
  const Share share = ShareOf(rows, 1, thread);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const int64_t at = r * a.dim;
    ForVectors(
        at, at + a.dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
          StoreUpTo(a.sum + i, LoadUpTo(a.x + i, n) + LoadUpTo(a.residual + i, n), n);
        });
    Normalize(a.sum + at, a.weight, a.y + at, a.dim, a.eps);
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
