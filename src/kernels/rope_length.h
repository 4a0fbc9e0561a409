// Rotations that depend on how long the sequence is (RopeSpec::by_length), the same for every
// kernel.
#pragma once

#include <math.h>

#include <cstdint>

#include "kernels/args.h"

namespace lucid {

// The length that counts for a token: what the step says, else what the token itself knows.
inline int32_t RopeLength(const StepView& step, int64_t token) {
  return step.rope_lengths != nullptr ? step.rope_lengths[token] : step.positions[token] + 1;
}

// The frequency of pair i of a sequence of `length` tokens.
inline float RopeFrequency(const RopeArgs& a, int32_t length, int64_t i) {
  const RopeStretch& s = a.stretch;
  if (s.limit == 0 || length <= s.limit) return a.inv_freq[i];
  if (s.inv_freq != nullptr) return s.inv_freq[i];
  // Dynamic NTK: theta times stretch^(d / (d - 2)).
  const double stretch = s.factor * length / s.limit - (s.factor - 1.0);
  const auto power = -2.0 * static_cast<double>(i) / static_cast<double>(a.rotary_dim - 2);
  return static_cast<float>(a.inv_freq[i] * ::pow(stretch, power));
}

}  // namespace lucid
