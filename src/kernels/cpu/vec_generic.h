// Vec of the base instruction set: 4 float lanes in the compiler's portable vector type (SSE2,
// NEON, or plain code).
//
// The vec_*.h files offer the same functions, and the *-inl.h algorithms are written once over
// them:
//
//   kLanes        lanes of a vector; every reduction runs lane-wise over ascending indices, then
//                 through one tree
//   kHasFma       whether Fma rounds once
//   kTileTokens   activation rows of the register tile of linear-inl.h (its weight rows are always
//                 4)
//   kFusedTokens  up to so many activation rows, weights are decoded in registers
//   kQueryRows    queries of the register tile of attention_tile-inl.h
//
// All loads and stores may be unaligned. LoadN and StoreN touch the first n < kLanes lanes only
// (LoadN: others are 0).
#pragma once

#include <cstdint>
#include <cstring>

namespace lucid::LUCID_ISA {
namespace {

constexpr int kLanes = 4;
constexpr bool kHasFma = false;
constexpr int kTileTokens =
    2;  // 4 x 2 sums: with products in registers of their own, 16 are soon full
constexpr int kFusedTokens = 2;
constexpr int kQueryRows = 2;

using F = float __attribute__((vector_size(16)));
using I = int32_t __attribute__((vector_size(16)));

inline F Load(const float* p) {
  F v;
  memcpy(&v, p, sizeof(v));
  return v;
}
inline F LoadN(const float* p, int64_t n) {
  F v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline void Store(float* p, F v) {
  memcpy(p, &v, sizeof(v));
}
inline void StoreN(float* p, F v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
inline F Set(float x) {
  return F{x, x, x, x};
}
inline F Zero() {
  return F{};
}
inline F Fma(F a, F b, F c) {
  return a * b + c;
}  // a * b + c
inline F Max(F a, F b) {
  return a > b ? a : b;
}
inline F Min(F a, F b) {
  return a < b ? a : b;
}
inline F Abs(F a) {
  return reinterpret_cast<F>(reinterpret_cast<I>(a) & 0x7fffffff);
}
inline F Sqrt(F a) {
  for (int i = 0; i < kLanes; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
// To the nearest integer, ties to even; |a| < 2^22.
inline F Round(F a) {
  const F magic = Set(12582912.0f);  // 1.5 * 2^23: the unit in the last place is 1
  return (a + magic) - magic;
}
// Integers of at most 127 in magnitude as signed bytes: kLanes of them.
inline void StoreI8(int8_t* p, F a) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(static_cast<int32_t>(a[i]));
}
// The sum of 16 bytes.
inline int32_t SumOf16(const int8_t* p) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += p[i];
  return sum;
}
// The sum of lanes that are integers, if it is below 2^24: exact in any order.
inline float SumOfIntegers(F a) {
  return (a[0] + a[1]) + (a[2] + a[3]);
}
// yes where a < b, else no.
inline F IfLess(F a, F b, F yes, F no) {
  return a < b ? yes : no;
}
// v in lanes begin <= i < end, `other` elsewhere.
inline F KeepLanes(F v, int64_t begin, int64_t end, F other) {
  for (int64_t i = 0; i < kLanes; ++i) {
    if (i < begin || i >= end) v[i] = other[i];
  }
  return v;
}
// 2^n for integral n in [-126, 127].
inline F PowerOfTwo(F n) {
  return reinterpret_cast<F>((__builtin_convertvector(n, I) + 127) << 23);
}
// p * 2^n, n integral; 0 where x < lowest, which is where n may lie below -126.
inline F TimesPowerOfTwo(F p, F n, F x, float lowest) {
  return IfLess(x, Set(lowest), Zero(), p * PowerOfTwo(Max(Set(-126.0f), n)));
}
// Whether a > b in any lane.
inline bool AnyGreater(F a, F b) {
  const I greater = a > b;
  return (greater[0] | greater[1] | greater[2] | greater[3]) != 0;
}

// From sin and cos of an angle in [-pi/4, pi/4], those of the angle + n * pi/2.
inline void SinCosQuadrant(F n, F sin, F cos, F* out_sin, F* out_cos) {
  const I q = __builtin_convertvector(n, I);
  const I odd = (q & 1) == 1;
  const F s = odd ? cos : sin;
  const F c = odd ? sin : cos;
  *out_sin = (q & 2) == 2 ? -s : s;
  *out_cos = ((q + 1) & 2) == 2 ? -c : c;
}

// The four sums of lanes, each by the same tree: neighbours, pairs.
inline void Sum4(F a, F b, F c, F d, float* out) {
  out[0] = (a[0] + a[1]) + (a[2] + a[3]);
  out[1] = (b[0] + b[1]) + (b[2] + b[3]);
  out[2] = (c[0] + c[1]) + (c[2] + c[3]);
  out[3] = (d[0] + d[1]) + (d[2] + d[3]);
}
inline float MaxLane(F v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// Of kLanes rows of kLanes values: lane i of row j becomes lane j of row i.
inline void Transpose(F* rows) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float x = rows[i][j];
      rows[i][j] = rows[j][i];
      rows[j][i] = x;
    }
  }
}

// kLanes unsigned / signed bytes as floats.
inline F LoadU8(const uint8_t* p) {
  return __builtin_convertvector((I{p[0], p[1], p[2], p[3]}), F);
}
inline F LoadI8(const uint8_t* p) {
  int8_t q[kLanes];
  memcpy(q, p, sizeof(q));
  return __builtin_convertvector((I{q[0], q[1], q[2], q[3]}), F);
}

// IEEE 754 binary16 at p.
inline float HalfToFloat(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, sizeof(h));
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t rest = h & 0x7fffu;
  uint32_t bits;
  if (rest >= 0x7c00u) {  // infinity or NaN, which becomes quiet
    bits = 0x7f800000u | ((rest & 0x3ffu) << 13) | (rest > 0x7c00u ? 0x400000u : 0u);
  } else if (rest >= 0x400u) {
    bits = (rest << 13) + (112u << 23);
  } else {  // subnormal: rest * 2^-24, exact
    const float value = static_cast<float>(rest) * 0x1p-24f;
    memcpy(&bits, &value, sizeof(bits));
  }
  bits |= sign;
  float out;
  memcpy(&out, &bits, sizeof(out));
  return out;
}
// To the nearest binary16, ties to even.
inline uint16_t FloatToHalf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (bits >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    float magnitude;
    memcpy(&magnitude, &bits, sizeof(magnitude));
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, sizeof(bits));
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  const uint32_t odd = (bits >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((bits - (112u << 23) + 0xfffu + odd) >> 13));
}
// The binary16 at p in all lanes; the two at p and p + 2.
inline F SetHalf(const uint8_t* p) {
  return Set(HalfToFloat(p));
}
inline void SetTwoHalves(const uint8_t* p, F* first, F* second) {
  *first = SetHalf(p);
  *second = SetHalf(p + 2);
}
// kLanes binary16 values.
inline F LoadF16(const uint8_t* p) {
  return F{HalfToFloat(p), HalfToFloat(p + 2), HalfToFloat(p + 4), HalfToFloat(p + 6)};
}
// kLanes bfloat16 values.
inline F LoadBf16(const uint8_t* p) {
  uint16_t h[kLanes];
  memcpy(h, p, sizeof(h));
  return reinterpret_cast<F>(I{h[0], h[1], h[2], h[3]} << 16);
}
inline void StoreF16(uint8_t* p, F v) {
  const uint16_t h[kLanes] = {FloatToHalf(v[0]), FloatToHalf(v[1]), FloatToHalf(v[2]),
                              FloatToHalf(v[3])};
  memcpy(p, h, sizeof(h));
}

// Of 16 bytes, d_low * nibble + m_low of the low nibbles and d_high * nibble + m_high of the high
// ones.
struct Nibbles {
  F low[4];
  F high[4];
};
inline Nibbles AffineNibbles(const uint8_t* p, F d_low, F m_low, F d_high, F m_high) {
  Nibbles out;
  for (int i = 0; i < 4; ++i) {
    const I q = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
    out.low[i] = Fma(d_low, __builtin_convertvector(q & 0x0f, F), m_low);
    out.high[i] = Fma(d_high, __builtin_convertvector(q >> 4, F), m_high);
  }
  return out;
}

// Of kLanes bytes, d * q + m of the four 2-bit numbers q of each, lowest bits in out[0].
inline void AffineCrumbs(const uint8_t* p, F d, F m, F* out) {
  const I q = {p[0], p[1], p[2], p[3]};
  for (int j = 0; j < 4; ++j) {
    out[j] = Fma(d, __builtin_convertvector((q >> (2 * j)) & 3, F), m);
  }
}
// The same of 8 bytes, in the order of 32 values: value i is in byte i % 8.
inline void AffineGroup2(const uint8_t* p, F d, F m, F* out) {
  F low[4];
  F high[4];
  AffineCrumbs(p, d, m, low);
  AffineCrumbs(p + 4, d, m, high);
  for (int j = 0; j < 4; ++j) {
    out[2 * j] = low[j];
    out[2 * j + 1] = high[j];
  }
}

// kLanes values of the 8-bit float E4M3 (no infinities). Its exponent and mantissa as those of a
// float are 2^120 too small, denormal numbers included.
inline F LoadE4M3(const uint8_t* p) {
  const I bits = {p[0], p[1], p[2], p[3]};
  const I magnitude = bits & 0x7f;
  const F value = reinterpret_cast<F>(magnitude << 20) * Set(0x1p120f);
  const I nan = (magnitude == 0x7f) & 0x7fc00000;
  return reinterpret_cast<F>(reinterpret_cast<I>(value) | nan | ((bits & 0x80) << 24));
}

// Bit `bit` of 16 bytes, byte i's as bit i.
inline uint32_t BitOfBytes16(const uint8_t* p, int bit) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>((p[i] >> bit) & 1) << i;
  return bits;
}

// out[i] = low nibble of qs[i] + 16 * bit i of low_bits, out[16 + i] = high nibble + 16 * bit i of
// high_bits; i < 16.
inline void Unpack5(const uint8_t* qs, uint32_t low_bits, uint32_t high_bits, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>((qs[i] & 0x0f) | (((low_bits >> i) & 1u) << 4));
    out[16 + i] = static_cast<uint8_t>((qs[i] >> 4) | (((high_bits >> i) & 1u) << 4));
  }
}

// AffineNibbles of 5-bit values: the fifth bits of the low and high nibbles are bits 0 to 15 of two
// words.
inline Nibbles AffineFives(const uint8_t* p, uint32_t low_bits, uint32_t high_bits, F d_low,
                           F m_low, F d_high, F m_high) {
  uint8_t q[32];
  Unpack5(p, low_bits, high_bits, q);
  Nibbles out;
  for (int i = 0; i < 16 / kLanes; ++i) {
    out.low[i] = Fma(d_low, LoadU8(q + i * kLanes), m_low);
    out.high[i] = Fma(d_high, LoadU8(q + 16 + i * kLanes), m_high);
  }
  return out;
}

}  // namespace
}  // namespace lucid::LUCID_ISA
