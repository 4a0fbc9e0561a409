// Strip vectors of NEON, and of NEON with dot products where the compile flags grant them: the same
// sums in a quarter of the instructions. See dot_generic.h.
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/strip-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kRowTile = 3;  // 3 x 4 sums of integers, as many of floats, 4 of weights: 28 of 32
constexpr int kStripTile = 1;
constexpr int kDirectRows = 6;
constexpr bool kSignedDot = true;

// Vector i: rows 4i to 4i + 3.
struct Bytes {
  uint8x16_t v[4];
};
struct Ints {
  int32x4_t v[4];
};

#define LUCID_EACH_OF_FOUR(Type, expression)            \
  Type out;                                             \
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) { \
    out.v[i] = expression;                              \
  }                                                     \
  return out

inline Bytes LoadBytes(const uint8_t* p) {
  LUCID_EACH_OF_FOUR(Bytes, vld1q_u8(p + 16 * i));
}
inline void StoreBytes(uint8_t* p, const Bytes& b) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, b.v[i]);
}
template <int kShift>
inline Bytes ShiftBits(const Bytes& b) {
  if constexpr (kShift > 0) {
    LUCID_EACH_OF_FOUR(Bytes, vshlq_n_u8(b.v[i], kShift));
  } else if constexpr (kShift < 0) {
    LUCID_EACH_OF_FOUR(Bytes, vshrq_n_u8(b.v[i], -kShift));
  } else {
    return b;
  }
}
inline Bytes And(const Bytes& b, uint8_t mask) {
  LUCID_EACH_OF_FOUR(Bytes, vandq_u8(b.v[i], vdupq_n_u8(mask)));
}
inline Bytes Or(const Bytes& a, const Bytes& b) {
  LUCID_EACH_OF_FOUR(Bytes, vorrq_u8(a.v[i], b.v[i]));
}
inline Bytes Lookup(const int8_t* table, const Bytes& index) {
  const uint8x16_t levels = vreinterpretq_u8_s8(vld1q_s8(table));
  LUCID_EACH_OF_FOUR(Bytes, vqtbl1q_u8(levels, index.v[i]));
}

inline Ints ZeroInts() {
  LUCID_EACH_OF_FOUR(Ints, vdupq_n_s32(0));
}
inline Ints ShiftedInt(int32_t x, int bits) {
  const int32x4_t all = vshlq_s32(vdupq_n_s32(x), vdupq_n_s32(bits));
  LUCID_EACH_OF_FOUR(Ints, all);
}
using RunSums = Ints;
constexpr int RunGroups(int) {
  return 8;
}
inline RunSums BeginRun(const Ints& before) {
  return before;
}
inline Ints EndRun(const Ints&, const RunSums& run) {
  return run;
}
// Adds the products of each four bytes to the sum of their row.
inline int32x4_t DotSigned(int32x4_t sum, int8x16_t w, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, w, x);
#else
  // Two products are at most 2 * 128 * 127: they fit in 16 bits.
  const int16x8_t rows01 = vmull_s8(vget_low_s8(w), vget_low_s8(x));
  const int16x8_t rows23 = vmull_high_s8(w, x);
  return vpadalq_s16(sum, vpaddq_s16(rows01, rows23));
#endif
}
inline Ints DotOfSigned(const Ints& sum, const Bytes& w, Four x) {
  const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(x));
  LUCID_EACH_OF_FOUR(Ints, DotSigned(sum.v[i], vreinterpretq_s8_u8(w.v[i]), four));
}
// Unsigned weights below 64 are the same bytes.
inline Ints Dot(const Ints& sum, const Bytes& w, Four x) {
  return DotOfSigned(sum, w, x);
}
inline Ints TimesHighUnit(const Ints& a) {
  LUCID_EACH_OF_FOUR(Ints, vshlq_n_s32(a.v[i], kLowBits));
}
inline Ints Add(const Ints& a, const Ints& b) {
  LUCID_EACH_OF_FOUR(Ints, vaddq_s32(a.v[i], b.v[i]));
}
inline Floats ToFloats(const Ints& a) {
  LUCID_EACH_OF_FOUR(Floats, vcvtq_f32_s32(a.v[i]));
}
#undef LUCID_EACH_OF_FOUR

}  // namespace
}  // namespace lucid::LUCID_ISA
