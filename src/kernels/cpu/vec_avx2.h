// Vec of AVX2 with FMA and F16C: 8 float lanes. One of the vec_*.h files with the same functions
// (vec_generic.h documents each of them).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/x86-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kLanes = 8;
constexpr bool kHasFma = true;
constexpr int kTileTokens = 3;   // 4 x 3 sums, 3 activations, 1 weight vector: all 16 registers
constexpr int kFusedTokens = 2;  // 4 x 2 sums leave room for the vectors of a decoder
constexpr int kQueryRows = 3;

using F = __m256;

inline __m256i LanesBelow(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

inline F Load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline F LoadN(const float* p, int64_t n) {
  return _mm256_maskload_ps(p, LanesBelow(n));
}
inline void Store(float* p, F v) {
  _mm256_storeu_ps(p, v);
}
inline void StoreN(float* p, F v, int64_t n) {
  _mm256_maskstore_ps(p, LanesBelow(n), v);
}
inline F Set(float x) {
  return _mm256_set1_ps(x);
}
inline F Zero() {
  return _mm256_setzero_ps();
}
inline F Fma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline F Max(F a, F b) {
  return _mm256_max_ps(a, b);
}
inline F Min(F a, F b) {
  return _mm256_min_ps(a, b);
}
inline F Abs(F a) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
inline F Sqrt(F a) {
  return _mm256_sqrt_ps(a);
}
inline F Round(F a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void StoreI8(int8_t* p, F a) {
  const __m256i words = _mm256_cvtps_epi32(a);
  const __m128i halves =
      _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
}
inline float SumOfIntegers(F a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
inline F IfLess(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline F KeepLanes(F v, int64_t begin, int64_t end, F other) {
  const __m256i keep = _mm256_andnot_si256(LanesBelow(begin), LanesBelow(end));
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(keep));
}
inline F PowerOfTwo(F n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
inline F TimesPowerOfTwo(F p, F n, F x, float lowest) {
  return IfLess(x, Set(lowest), Zero(), p * PowerOfTwo(n));
}
inline bool AnyGreater(F a, F b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
}
inline void SinCosQuadrant(F n, F sin, F cos, F* out_sin, F* out_cos) {
  const __m256i q = _mm256_cvtps_epi32(n);
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i two = _mm256_set1_epi32(2);
  const F swap = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(q, one), one));
  const __m256i sin_sign = _mm256_slli_epi32(_mm256_and_si256(q, two), 30);
  const __m256i cos_sign = _mm256_slli_epi32(_mm256_and_si256(_mm256_add_epi32(q, one), two), 30);
  *out_sin = _mm256_xor_ps(_mm256_blendv_ps(sin, cos, swap), _mm256_castsi256_ps(sin_sign));
  *out_cos = _mm256_xor_ps(_mm256_blendv_ps(cos, sin, swap), _mm256_castsi256_ps(cos_sign));
}

// The tree of Sum4: neighbours, pairs, halves.
inline void Sum4(F a, F b, F c, F d, float* out) {
  const F sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}
inline float MaxLane(F v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Pairs of rows, of fours, then halves.
inline void Transpose(F* rows) {
  F t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  F u[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

inline __m128i LoadBytes8(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline F LoadU8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(LoadBytes8(p)));
}
inline F LoadI8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(LoadBytes8(p)));
}
inline F SetHalf(const uint8_t* p) {
  int16_t half;
  memcpy(&half, p, sizeof(half));
  return _mm256_cvtph_ps(_mm_set1_epi16(half));
}
// One conversion for both: the pair is repeated over the register, then even and odd lanes are
// doubled.
inline void SetTwoHalves(const uint8_t* p, F* first, F* second) {
  int32_t pair;
  memcpy(&pair, p, sizeof(pair));
  const F both = _mm256_cvtph_ps(_mm_set1_epi32(pair));
  *first = _mm256_moveldup_ps(both);
  *second = _mm256_movehdup_ps(both);
}
inline F LoadF16(const uint8_t* p) {
  return _mm256_cvtph_ps(LoadBytes16(p));
}
inline F LoadBf16(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadBytes16(p)), 16));
}
inline void StoreF16(uint8_t* p, F v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

struct Nibbles {
  F low[2];
  F high[2];
};
inline Nibbles AffineNibbles(const uint8_t* p, F d_low, F m_low, F d_high, F m_high) {
  const __m256i mask = _mm256_set1_epi32(0x0f);
  Nibbles out;
  for (int i = 0; i < 2; ++i) {
    const __m256i q = _mm256_cvtepu8_epi32(LoadBytes8(p + 8 * i));
    out.low[i] = Fma(d_low, _mm256_cvtepi32_ps(_mm256_and_si256(q, mask)), m_low);
    out.high[i] = Fma(d_high, _mm256_cvtepi32_ps(_mm256_srli_epi32(q, 4)), m_high);
  }
  return out;
}

inline void AffineCrumbs(const uint8_t* p, F d, F m, F* out) {
  const __m256i mask = _mm256_set1_epi32(3);
  const __m256i q = _mm256_cvtepu8_epi32(LoadBytes8(p));
  out[0] = Fma(d, _mm256_cvtepi32_ps(_mm256_and_si256(q, mask)), m);
  out[1] = Fma(d, _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(q, 2), mask)), m);
  out[2] = Fma(d, _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(q, 4), mask)), m);
  out[3] = Fma(d, _mm256_cvtepi32_ps(_mm256_srli_epi32(q, 6)), m);
}
inline void AffineGroup2(const uint8_t* p, F d, F m, F* out) {
  AffineCrumbs(p, d, m, out);
}

// As a float16, whose exponent is 8 larger for the same value.
inline F LoadE4M3(const uint8_t* p) {
  const __m128i high = _mm_slli_epi16(_mm_cvtepu8_epi16(LoadBytes8(p)), 8);
  const __m128i half =
      _mm_and_si128(_mm_srai_epi16(high, 1), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  const F value = _mm256_cvtph_ps(half) * Set(256.0f);
  return IfLess(Set(448.0f), Abs(value), Set(__builtin_nanf("")), value);
}

// 0x10 in byte i where bit i of `bits` is set.
inline __m128i FifthBits(uint32_t bits) {
  const __m128i spread = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m128i select = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  const __m128i bytes = _mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(bits)), spread);
  const __m128i set = _mm_cmpeq_epi8(_mm_and_si128(bytes, select), select);
  return _mm_and_si128(set, _mm_set1_epi8(0x10));
}

// out[i] = low nibble of qs[i] + 16 * bit i of low_bits, out[16 + i] = high nibble + 16 * bit i of
// high_bits; i < 16.
inline void Unpack5(const uint8_t* qs, uint32_t low_bits, uint32_t high_bits, uint8_t* out) {
  const __m128i low_mask = _mm_set1_epi8(0x0f);
  const __m128i q = LoadBytes16(qs);
  const __m128i low = _mm_and_si128(q, low_mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(q, 4), low_mask);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_or_si128(low, FifthBits(low_bits)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_or_si128(high, FifthBits(high_bits)));
}
inline uint32_t BitOfBytes16(const uint8_t* p, int bit) {
  const __m128i top = _mm_sll_epi16(LoadBytes16(p), _mm_cvtsi32_si128(7 - bit));
  return static_cast<uint32_t>(_mm_movemask_epi8(top));
}
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
