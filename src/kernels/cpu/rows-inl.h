// The row kernels, over the vectors of vec_<name>.h and over D, a vector of kDoubles doubles, which
// the including rows_<name>.cc has defined with these functions:
//   Widen(p)       kDoubles floats from p          Spread(x)  x in every lane
//   ToFloat(a)     each lane rounded to float      Max(a, b)  b where a is NaN
//   Fma(a, b, c)   a * b + c                       Nearest(a) to the nearest whole number
//   Scaled(p, n)   p * 2^n for whole n >= -1022
// and with NotLess(a, b), whose bit i tells whether lane i of a (an F) is b's or more.
//
// A block is summed in eight lanes whatever kDoubles is, so that every instruction set with a fused
// multiply-add gets the same bits.
#pragma once

#include <cstdint>

#include "kernels/rows.h"

namespace lucid::LUCID_ISA {
namespace {

float Maxima(const float* x, int64_t n_blocks, float* maxima) {
  F most_of_all = Set(-__builtin_inff());
  for (int64_t b = 0; b < n_blocks; ++b, x += kRowBlock) {
    F most = Set(-__builtin_inff());
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRowBlock; i += kLanes) most = Max(Load(x + i), most);
    maxima[b] = MaxLane(most);
    most_of_all = Max(most, most_of_all);
  }
  return MaxLane(most_of_all);
}

uint64_t AtLeast(const float* x, float limit) {
  uint64_t bits = 0;
#pragma GCC unroll 16
  for (int64_t i = 0; i < kRowBlock; i += kLanes)
    bits |= uint64_t{NotLess(Load(x + i), Set(limit))} << i;
  return bits;
}

// e^y for -700 <= y <= 0, with a relative error below 5e-11, and 1 for 0: 2^(n + r) with n whole,
// |r| <= 1/2 and the polynomial 1 + ... of degree 7 with the smallest largest error.
inline D ExpOf(D y) {
  const D z = y * Spread(1.4426950408889634);
  const D n = Nearest(z);
  const D r = z - n;
  D p = Spread(1.519615751887179e-05);
  p = Fma(p, r, Spread(0.00015466756690949622));
  p = Fma(p, r, Spread(0.0013333935055170037));
  p = Fma(p, r, Spread(0.009618038130989659));
  p = Fma(p, r, Spread(0.055504103659874925));
  p = Fma(p, r, Spread(0.24022651066567596));
  p = Fma(p, r, Spread(0.6931471807045344));
  p = Fma(p, r, Spread(1.0));
  return Scaled(p, n);
}

template <bool kTempered>
void WeightsAs(const float* x, int64_t n_blocks, const RowScale& scale, double* sums) {
  constexpr int kParts = 8 / kDoubles;
  const D max = Spread(scale.max);
  const D temperature = Spread(scale.temperature);
  const D least = Spread(-700.0);
  for (int64_t b = 0; b < n_blocks; ++b, x += kRowBlock) {
    D sum[kParts];
#pragma GCC unroll 8
    for (int j = 0; j < kParts; ++j) sum[j] = Spread(0.0);
    for (int64_t i = 0; i < kRowBlock; i += 8) {
#pragma GCC unroll 8
      for (int j = 0; j < kParts; ++j) {
        D y = Widen(x + i + j * kDoubles) - max;
        if constexpr (kTempered) y = ToFloat(y / temperature);
        sum[j] = sum[j] + ExpOf(Max(y, least));
      }
    }
    double lanes[8];
    memcpy(lanes, sum, sizeof(lanes));
    sums[b] = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
              ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
}

void Weights(const float* x, int64_t n_blocks, const RowScale& scale, double* sums) {
  if (scale.tempered) {
    WeightsAs<true>(x, n_blocks, scale, sums);
  } else {
    WeightsAs<false>(x, n_blocks, scale, sums);
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
