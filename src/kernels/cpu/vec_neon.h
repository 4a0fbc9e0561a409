// Vec of NEON (the Advanced SIMD of every 64-bit Arm): 4 float lanes. One of the vec_*.h files with
// the same functions (vec_generic.h documents each of them).
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace lucid::LUCID_ISA {
namespace {

constexpr int kLanes = 4;
constexpr bool kHasFma = true;
constexpr int kTileTokens = 6;   // 4 x 6 sums, 4 weight vectors: 28 of 32 registers
constexpr int kFusedTokens = 4;  // 4 x 4 sums leave room for the vectors of a decoder
constexpr int kQueryRows = 6;

using F = float32x4_t;

inline F Load(const float* p) {
  return vld1q_f32(p);
}
inline F LoadN(const float* p, int64_t n) {
  float v[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return Load(v);
}
inline void Store(float* p, F v) {
  vst1q_f32(p, v);
}
inline void StoreN(float* p, F v, int64_t n) {
  float lane[kLanes];
  Store(lane, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lane[i];
}
inline F Set(float x) {
  return vdupq_n_f32(x);
}
inline F Zero() {
  return vdupq_n_f32(0.0f);
}
inline F Fma(F a, F b, F c) {
  return vfmaq_f32(c, a, b);
}
// Not vmaxq_f32 and vminq_f32: of a NaN and of zeros of both signs these shall be b, as everywhere
// else.
inline F Max(F a, F b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline F Min(F a, F b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
inline F Abs(F a) {
  return vabsq_f32(a);
}
inline F Sqrt(F a) {
  return vsqrtq_f32(a);
}
inline F Round(F a) {
  return vrndnq_f32(a);
}
inline void StoreI8(int8_t* p, F a) {
  const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(a));
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(words, words));
  const int32_t four = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
  memcpy(p, &four, sizeof(four));
}
inline int32_t SumOf16(const int8_t* p) {
  return vaddlvq_s8(vld1q_s8(p));
}
inline float SumOfIntegers(F a) {
  return vaddvq_f32(a);
}
inline F IfLess(F a, F b, F yes, F no) {
  return vbslq_f32(vcltq_f32(a, b), yes, no);
}
inline F KeepLanes(F v, int64_t begin, int64_t end, F other) {
  const int32_t numbers[kLanes] = {0, 1, 2, 3};
  const int32x4_t lane = vld1q_s32(numbers);
  const uint32x4_t keep = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(static_cast<int32_t>(begin))),
                                    vcltq_s32(lane, vdupq_n_s32(static_cast<int32_t>(end))));
  return vbslq_f32(keep, v, other);
}
inline F PowerOfTwo(F n) {
  const int32x4_t biased = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
}
inline F TimesPowerOfTwo(F p, F n, F x, float lowest) {
  return IfLess(x, Set(lowest), Zero(), p * PowerOfTwo(n));
}
inline bool AnyGreater(F a, F b) {
  return vmaxvq_u32(vcgtq_f32(a, b)) != 0;
}
inline void SinCosQuadrant(F n, F sin, F cos, F* out_sin, F* out_cos) {
  const uint32x4_t q = vreinterpretq_u32_s32(vcvtnq_s32_f32(n));
  const uint32x4_t two = vdupq_n_u32(2);
  const uint32x4_t swap = vtstq_u32(q, vdupq_n_u32(1));
  const uint32x4_t sin_sign = vshlq_n_u32(vandq_u32(q, two), 30);
  const uint32x4_t cos_sign = vshlq_n_u32(vandq_u32(vaddq_u32(q, vdupq_n_u32(1)), two), 30);
  const uint32x4_t s = vreinterpretq_u32_f32(vbslq_f32(swap, cos, sin));
  const uint32x4_t c = vreinterpretq_u32_f32(vbslq_f32(swap, sin, cos));
  *out_sin = vreinterpretq_f32_u32(veorq_u32(s, sin_sign));
  *out_cos = vreinterpretq_f32_u32(veorq_u32(c, cos_sign));
}

// The tree of Sum4: neighbours, pairs.
inline void Sum4(F a, F b, F c, F d, float* out) {
  Store(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}
inline float MaxLane(F v) {
  return vmaxvq_f32(v);
}

// Pairs of rows, then halves.
inline void Transpose(F* rows) {
  const F low_even = vtrn1q_f32(rows[0], rows[1]);
  const F low_odd = vtrn2q_f32(rows[0], rows[1]);
  const F high_even = vtrn1q_f32(rows[2], rows[3]);
  const F high_odd = vtrn2q_f32(rows[2], rows[3]);
  rows[0] = vcombine_f32(vget_low_f32(low_even), vget_low_f32(high_even));
  rows[1] = vcombine_f32(vget_low_f32(low_odd), vget_low_f32(high_odd));
  rows[2] = vcombine_f32(vget_high_f32(low_even), vget_high_f32(high_even));
  rows[3] = vcombine_f32(vget_high_f32(low_odd), vget_high_f32(high_odd));
}

inline uint8x8_t LoadBytes4(const uint8_t* p) {
  uint32_t four;
  memcpy(&four, p, sizeof(four));
  return vcreate_u8(four);
}
inline uint32x4_t Widen(uint8x8_t bytes) {
  return vmovl_u16(vget_low_u16(vmovl_u8(bytes)));
}
inline F LoadU8(const uint8_t* p) {
  return vcvtq_f32_u32(Widen(LoadBytes4(p)));
}
inline F LoadI8(const uint8_t* p) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(LoadBytes4(p))))));
}

inline uint16x4_t LoadHalves4(const uint8_t* p) {
  uint64_t four;
  memcpy(&four, p, sizeof(four));
  return vcreate_u16(four);
}
inline F LoadF16(const uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(LoadHalves4(p)));
}
inline F SetHalf(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, sizeof(half));
  return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}
inline void SetTwoHalves(const uint8_t* p, F* first, F* second) {
  *first = SetHalf(p);
  *second = SetHalf(p + 2);
}
inline float HalfToFloat(const uint8_t* p) {
  return vgetq_lane_f32(SetHalf(p), 0);
}
inline F LoadBf16(const uint8_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(LoadHalves4(p), 16));
}
inline void StoreF16(uint8_t* p, F v) {
  const uint64_t four = vget_lane_u64(vreinterpret_u64_f16(vcvt_f16_f32(v)), 0);
  memcpy(p, &four, sizeof(four));
}

struct Nibbles {
  F low[4];
  F high[4];
};
inline Nibbles AffineNibbles(const uint8_t* p, F d_low, F m_low, F d_high, F m_high) {
  Nibbles out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t q = Widen(LoadBytes4(p + 4 * i));
    out.low[i] = Fma(d_low, vcvtq_f32_u32(vandq_u32(q, vdupq_n_u32(0x0f))), m_low);
    out.high[i] = Fma(d_high, vcvtq_f32_u32(vshrq_n_u32(q, 4)), m_high);
  }
  return out;
}

inline void AffineCrumbs(const uint8_t* p, F d, F m, F* out) {
  const uint32x4_t mask = vdupq_n_u32(3);
  const uint32x4_t q = Widen(LoadBytes4(p));
  out[0] = Fma(d, vcvtq_f32_u32(vandq_u32(q, mask)), m);
  out[1] = Fma(d, vcvtq_f32_u32(vandq_u32(vshrq_n_u32(q, 2), mask)), m);
  out[2] = Fma(d, vcvtq_f32_u32(vandq_u32(vshrq_n_u32(q, 4), mask)), m);
  out[3] = Fma(d, vcvtq_f32_u32(vshrq_n_u32(q, 6)), m);
}
inline void AffineGroup2(const uint8_t* p, F d, F m, F* out) {
  F low[4];
  F high[4];
  AffineCrumbs(p, d, m, low);
  AffineCrumbs(p + 4, d, m, high);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    out[2 * j] = low[j];
    out[2 * j + 1] = high[j];
  }
}

// As a float16, whose exponent is 8 larger for the same value.
inline F LoadE4M3(const uint8_t* p) {
  const int16x4_t high = vget_low_s16(vreinterpretq_s16_u16(vshll_n_u8(LoadBytes4(p), 8)));
  const uint16x4_t half = vand_u16(vreinterpret_u16_s16(vshr_n_s16(high, 1)), vdup_n_u16(0xbf80));
  const F value = vcvt_f32_f16(vreinterpret_f16_u16(half)) * Set(256.0f);
  return IfLess(Set(448.0f), Abs(value), Set(__builtin_nanf("")), value);
}

constexpr uint8_t kBitOfByte[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

// 0x10 in byte i where bit i of `bits` is set.
inline uint8x16_t FifthBits(uint32_t bits) {
  const uint8x16_t bytes = vcombine_u8(vdup_n_u8(static_cast<uint8_t>(bits)),
                                       vdup_n_u8(static_cast<uint8_t>(bits >> 8)));
  return vandq_u8(vtstq_u8(bytes, vld1q_u8(kBitOfByte)), vdupq_n_u8(0x10));
}

// out[i] = low nibble of qs[i] + 16 * bit i of low_bits, out[16 + i] = high nibble + 16 * bit i of
// high_bits; i < 16.
inline void Unpack5(const uint8_t* qs, uint32_t low_bits, uint32_t high_bits, uint8_t* out) {
  const uint8x16_t q = vld1q_u8(qs);
  vst1q_u8(out, vorrq_u8(vandq_u8(q, vdupq_n_u8(0x0f)), FifthBits(low_bits)));
  vst1q_u8(out + 16, vorrq_u8(vshrq_n_u8(q, 4), FifthBits(high_bits)));
}
inline uint32_t BitOfBytes16(const uint8_t* p, int bit) {
  const uint8x16_t set = vtstq_u8(vld1q_u8(p), vdupq_n_u8(static_cast<uint8_t>(1 << bit)));
  const uint8x16_t weighted = vandq_u8(set, vld1q_u8(kBitOfByte));
  const uint32_t low = vaddv_u8(vget_low_u8(weighted));
  const uint32_t high = vaddv_u8(vget_high_u8(weighted));
  return low | high << 8;
}
inline Nibbles AffineFives(const uint8_t* p, uint32_t low_bits, uint32_t high_bits, F d_low,
                           F m_low, F d_high, F m_high) {
  uint8_t q[32];
  Unpack5(p, low_bits, high_bits, q);
  Nibbles out;
#pragma GCC unroll 4
  for (int i = 0; i < 16 / kLanes; ++i) {
    out.low[i] = Fma(d_low, LoadU8(q + i * kLanes), m_low);
    out.high[i] = Fma(d_high, LoadU8(q + 16 + i * kLanes), m_high);
  }
  return out;
}

}  // namespace
}  // namespace lucid::LUCID_ISA
