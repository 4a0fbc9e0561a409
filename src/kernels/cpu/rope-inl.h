// Rotary position embedding, alone and after a norm per head.
//
// Cosines and sines are computed once per token and thread, for all its heads. The angle is a
// float32 product, as in reference/rope.cc.
#pragma once

#include <math.h>

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/rope_length.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// cos and sin of position * frequency[i], times attn_factor; i < half.
inline void CosSinRow(const RopeArgs& a, const StepView& step, int64_t token, float* cos_out,
                      float* sin_out) {
  const int64_t half = a.rotary_dim / 2;
  const auto p = static_cast<float>(step.positions[token]);
  const float* freq = a.inv_freq;
  const int32_t length = RopeLength(step, token);
  if (a.stretch.limit != 0 && length > a.stretch.limit) {
    for (int64_t i = 0; i < half; ++i) sin_out[i] = RopeFrequency(a, length, i);
    freq = sin_out;
  }
  if constexpr (kHasFma) {
    ForVectors(
        0, half, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
          F s;
          F c;
          SinCos(LoadUpTo(freq + i, n) * Set(p), &s, &c);
          StoreUpTo(cos_out + i, c * Set(a.attn_factor), n);
          StoreUpTo(sin_out + i, s * Set(a.attn_factor), n);
        });
  } else {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p * freq[i]);
      cos_out[i] = static_cast<float>(::cos(angle)) * a.attn_factor;
      sin_out[i] = static_cast<float>(::sin(angle)) * a.attn_factor;
    }
  }
}

inline void RotatePairs(const RopeArgs& a, const float* c, const float* s, const float* x,
                        float* y) {
  const int64_t half = a.rotary_dim / 2;
  if (a.style == RopeStyle::kInterleaved) {
    for (int64_t i = 0; i < half; ++i) {
      const float x0 = x[2 * i];
      const float x1 = x[2 * i + 1];
      y[2 * i] = x0 * c[i] - x1 * s[i];
      y[2 * i + 1] = x1 * c[i] + x0 * s[i];
    }
    return;
  }
  ForVectors(
      0, half, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        const F x0 = LoadUpTo(x + i, n);
        const F x1 = LoadUpTo(x + half + i, n);
        const F cos_i = LoadUpTo(c + i, n);
        const F sin_i = LoadUpTo(s + i, n);
        StoreUpTo(y + i, x0 * cos_i - x1 * sin_i, n);
        StoreUpTo(y + half + i, x1 * cos_i + x0 * sin_i, n);
      });
}

// With `norm`, its x is read and normalised first; else the rope's.
inline void RotateShare(const RopeArgs& a, const RmsNormArgs* norm, const StepView& step,
                        const ThreadSlot& thread) {
  auto* c = reinterpret_cast<float*>(thread.scratch);
  float* s = c + a.rotary_dim / 2;
  const Share share = ShareOf(step.n_tokens * a.n_heads, 1, thread);
  int64_t token = -1;
  for (int64_t i = share.begin; i < share.end; ++i) {
    if (i / a.n_heads != token) {
      token = i / a.n_heads;
      CosSinRow(a, step, token, c, s);
    }
    float* y = a.y + i * a.head_dim;
    const float* x = y;
    if (norm != nullptr) {
      Normalize(norm->x + i * a.head_dim, norm->weight, y, a.head_dim, norm->eps);
    } else {
      x = a.x + i * a.head_dim;
      if (x != y) {
        for (int64_t j = 0; j < a.first; ++j) y[j] = x[j];
        for (int64_t j = a.first + a.rotary_dim; j < a.head_dim; ++j) y[j] = x[j];
      }
    }
    RotatePairs(a, c, s, x + a.first, y + a.first);
  }
}

void Rope(const void* args, const StepView& step, const ThreadSlot& thread) {
  RotateShare(*static_cast<const RopeArgs*>(args), nullptr, step, thread);
}

void NormRope(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const NormRopeArgs*>(args);
  RotateShare(a.rope, &a.norm, step, thread);
}

size_t RopeScratch(const void* args, int64_t /*max_rows*/) {
  return static_cast<size_t>(static_cast<const RopeArgs*>(args)->rotary_dim) * sizeof(float);
}
size_t NormRopeScratch(const void* args, int64_t max_rows) {
  return RopeScratch(&static_cast<const NormRopeArgs*>(args)->rope, max_rows);
}

}  // namespace
}  // namespace lucid::LUCID_ISA
