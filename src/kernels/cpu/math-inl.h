// Elementary functions on vectors, and the activations made of them.
//
// Accuracy that elementwise_test.cc holds them to, against double: Tanh 4e-7 relative; the
// activations 1e-6 relative + 5e-7; cosines and sines 2e-6 up to position 1,000,000.
//
// Method: Cody and Waite, "Software Manual for the Elementary Functions" (1980): reduce the
// argument with a constant split in exact parts, then a short polynomial (coefficients of the
// Cephes library's float functions).
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace lucid::LUCID_ISA {
namespace {

inline int64_t Least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
// n rounded up to whole vectors.
inline int64_t Padded(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// To the nearest bfloat16, ties to even.
inline uint16_t ToBf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// e^x; 0 below -87.3, where the result would be subnormal, and e^88 above 88. NaN gives NaN.
inline F Exp(F x) {
  const F lowest = Set(-87.3f);
  const F clamped = IfLess(x, lowest, lowest, IfLess(Set(88.0f), x, Set(88.0f), x));
  const F n = Round(clamped * Set(1.44269504088896341f));
  // ln 2 in two parts; n times the first is exact.
  F r = Fma(n, Set(-0.693359375f), clamped);
  r = Fma(n, Set(2.12194440e-4f), r);
  F p = Set(1.9875691500e-4f);
  p = Fma(p, r, Set(1.3981999507e-3f));
  p = Fma(p, r, Set(8.3334519073e-3f));
  p = Fma(p, r, Set(4.1665795894e-2f));
  p = Fma(p, r, Set(1.6666665459e-1f));
  p = Fma(p, r, Set(5.0000001201e-1f));
  p = Fma(p, r * r, r) + Set(1.0f);
  return IfLess(x, lowest, Zero(), p * PowerOfTwo(n));
}

constexpr float kLog2E = 1.44269504088896341f;

// 2^x; 0 below -126, where the result would be subnormal. x <= 127; NaN gives NaN. Relative error
// 1e-7 (coefficients: minimax of this degree on [-0.5, 0.5]).
inline F Exp2(F x) {
  const F n = Round(x);
  const F r = x - n;
  F p = Set(1.5345810e-4f);
  p = Fma(p, r, Set(1.3399930e-3f));
  p = Fma(p, r, Set(9.6184891e-3f));
  p = Fma(p, r, Set(5.5503286e-2f));
  p = Fma(p, r, Set(2.4022646e-1f));
  p = Fma(p, r, Set(6.9314718e-1f));
  p = Fma(p, r, Set(1.0f));
  return TimesPowerOfTwo(p, n, x, -126.0f);
}
// The same with a relative error of 8e-5, for results that are rounded to 8 bits.
inline F Exp2Rough(F x) {
  const F n = Round(x);
  const F r = x - n;
  F p = Set(5.5171665e-2f);
  p = Fma(p, r, Set(2.4261114e-1f));
  p = Fma(p, r, Set(6.9326097e-1f));
  p = Fma(p, r, Set(9.9992806e-1f));
  return TimesPowerOfTwo(p, n, x, -126.0f);
}

inline F Sigmoid(F x) {
  return Set(1.0f) / (Set(1.0f) + Exp(Zero() - x));
}

inline F Tanh(F x) {
  const F a = Abs(x);
  const F z = x * x;
  F p = Set(-5.70498872745e-3f);
  p = Fma(p, z, Set(2.06390887954e-2f));
  p = Fma(p, z, Set(-5.37397155531e-2f));
  p = Fma(p, z, Set(1.33314422036e-1f));
  p = Fma(p, z, Set(-3.33332819422e-1f));
  const F small = Fma(p * z, x, x);
  const F big = Set(1.0f) - Set(2.0f) / (Exp(a + a) + Set(1.0f));
  return IfLess(a, Set(0.625f), small, IfLess(x, Zero(), Zero() - big, big));
}

// erf by formula 7.1.26 of Abramowitz and Stegun, "Handbook of Mathematical Functions": error
// below 1.5e-7.
inline F Erf(F x) {
  const F a = Abs(x);
  const F t = Set(1.0f) / Fma(a, Set(0.3275911f), Set(1.0f));
  F p = Set(1.061405429f);
  p = Fma(p, t, Set(-1.453152027f));
  p = Fma(p, t, Set(1.421413741f));
  p = Fma(p, t, Set(-0.284496736f));
  p = Fma(p, t, Set(0.254829592f));
  const F positive = Set(1.0f) - p * t * Exp(Zero() - a * a);
  return IfLess(x, Zero(), Zero() - positive, positive);
}

inline F Silu(F x) {
  return x / (Set(1.0f) + Exp(Zero() - x));
}
// 0.5 x (1 + tanh u) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
inline F GeluTanh(F x) {
  const F u = Fma(x * x * Set(0.044715f), x, x);
  return x / (Set(1.0f) + Exp(u * Set(-1.5957691216057308f)));
}
inline F GeluErf(F x) {
  const F half = x * Set(0.5f);
  return Fma(half, Erf(x * Set(0.70710678118654752f)), half);
}
inline F GeluQuick(F x) {
  return x / (Set(1.0f) + Exp(x * Set(-1.702f)));
}
inline F Relu(F x) {
  return Max(x, Zero());
}
inline F ReluSquared(F x) {
  const F positive = Relu(x);
  return positive * positive;
}

// sin and cos of x, |x| < 2^21. Needs a fused multiply-add: the products of the reduction must not
// be rounded.
inline void SinCos(F x, F* out_sin, F* out_cos) {
  const F n = Round(x * Set(0.63661977236758134f));
  // pi / 2 in three parts.
  F r = Fma(n, Set(-1.57079637050628662109375f), x);
  r = Fma(n, Set(4.371138828673793e-8f), r);
  r = Fma(n, Set(1.7151245100058819e-15f), r);
  const F z = r * r;
  F s = Set(-1.9515295891e-4f);
  s = Fma(s, z, Set(8.3321608736e-3f));
  s = Fma(s, z, Set(-1.6666654611e-1f));
  s = Fma(s * z, r, r);
  F c = Set(2.443315711809948e-5f);
  c = Fma(c, z, Set(-1.388731625493765e-3f));
  c = Fma(c, z, Set(4.166664568298827e-2f));
  c = Fma(c * z, z, Fma(z, Set(-0.5f), Set(1.0f)));
  SinCosQuadrant(n, s, c, out_sin, out_cos);
}

inline float SumLanes(F v) {
  float sums[4];
  Sum4(v, v, v, v, sums);
  return sums[0];
}

// Calls body(i, n) for [begin, end) in vectors: n == kLanes, but for the last.
template <typename Body>
[[gnu::always_inline]] inline void ForVectors(int64_t begin, int64_t end, Body&& body) {
  for (int64_t i = begin; i < end; i += kLanes) body(i, end - i < kLanes ? end - i : kLanes);
}
inline F LoadUpTo(const float* p, int64_t n) {
  return n == kLanes ? Load(p) : LoadN(p, n);
}
inline void StoreUpTo(float* p, F v, int64_t n) {
  if (n == kLanes) {
    Store(p, v);
  } else {
    StoreN(p, v, n);
  }
}

template <F (*kActivation)(F)>
void GluWith(const float* gate, const float* up, float* y, int64_t begin, int64_t end) {
  ForVectors(
      begin, end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(y + i, kActivation(LoadUpTo(gate + i, n)) * LoadUpTo(up + i, n), n);
      });
}
template <F (*kActivation)(F)>
void ActivateWith(const float* x, float* y, int64_t begin, int64_t end) {
  ForVectors(
      begin, end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(y + i, kActivation(LoadUpTo(x + i, n)), n);
      });
}

// The loops of an activation.
struct ActivationLoops {
  void (*glu)(const float* gate, const float* up, float* y, int64_t begin, int64_t end);
  void (*plain)(const float* x, float* y, int64_t begin, int64_t end);
};
template <F (*kActivation)(F)>
inline ActivationLoops LoopsWith() {
  return {GluWith<kActivation>, ActivateWith<kActivation>};
}
inline ActivationLoops LoopsOf(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return LoopsWith<Silu>();
    case Activation::kGeluTanh:
      return LoopsWith<GeluTanh>();
    case Activation::kGeluErf:
      return LoopsWith<GeluErf>();
    case Activation::kGeluQuick:
      return LoopsWith<GeluQuick>();
    case Activation::kRelu:
      return LoopsWith<Relu>();
    case Activation::kReluSquared:
      return LoopsWith<ReluSquared>();
    case Activation::kSigmoid:
      return LoopsWith<Sigmoid>();
  }
  return {};
}

// y = act(gate) * up for indices [begin, end).
inline void GluRange(Activation act, const float* gate, const float* up, float* y, int64_t begin,
                     int64_t end) {
  LoopsOf(act).glu(gate, up, y, begin, end);
}

}  // namespace
}  // namespace lucid::LUCID_ISA
