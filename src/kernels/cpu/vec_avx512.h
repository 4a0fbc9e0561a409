// Vec of AVX-512: 16 float lanes. One of the vec_*.h files with the same functions (vec_generic.h
// documents each of them).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/x86-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kLanes = 16;
constexpr bool kHasFma = true;
constexpr int kTileTokens = 6;   // 4 x 6 sums, 4 weight vectors: 28 of 32 registers
constexpr int kFusedTokens = 4;  // 4 x 4 sums leave room for the vectors of a decoder
constexpr int kQueryRows = 6;

using F = __m512;

inline F Load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline __mmask16 FirstLanes(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
inline F LoadN(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
inline void Store(float* p, F v) {
  _mm512_storeu_ps(p, v);
}
inline void StoreN(float* p, F v, int64_t n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}
inline F Set(float x) {
  return _mm512_set1_ps(x);
}
inline F Zero() {
  return _mm512_setzero_ps();
}
inline F Fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline F Max(F a, F b) {
  return _mm512_max_ps(a, b);
}
inline F Min(F a, F b) {
  return _mm512_min_ps(a, b);
}
inline F Abs(F a) {
  return _mm512_abs_ps(a);
}
inline F Sqrt(F a) {
  return _mm512_sqrt_ps(a);
}
inline F Round(F a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT);
}
inline void StoreI8(int8_t* p, F a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}
inline float SumOfIntegers(F a) {
  return _mm512_reduce_add_ps(a);
}
inline F IfLess(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
inline F KeepLanes(F v, int64_t begin, int64_t end, F other) {
  const auto mask = static_cast<__mmask16>(FirstLanes(end) & ~FirstLanes(begin));
  return _mm512_mask_blend_ps(mask, other, v);
}
inline F PowerOfTwo(F n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}
inline F TimesPowerOfTwo(F p, F n, F x, float lowest) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, Set(lowest), _CMP_NLT_UQ), p, n);
}
inline bool AnyGreater(F a, F b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}
inline void SinCosQuadrant(F n, F sin, F cos, F* out_sin, F* out_cos) {
  const __m512i q = _mm512_cvtps_epi32(n);
  const __mmask16 swap = _mm512_test_epi32_mask(q, _mm512_set1_epi32(1));
  const __m512i two = _mm512_set1_epi32(2);
  const __m512i sin_sign = _mm512_slli_epi32(_mm512_and_epi32(q, two), 30);
  const __m512i cos_sign =
      _mm512_slli_epi32(_mm512_and_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(1)), two), 30);
  const __m512i s = _mm512_castps_si512(_mm512_mask_blend_ps(swap, sin, cos));
  const __m512i c = _mm512_castps_si512(_mm512_mask_blend_ps(swap, cos, sin));
  *out_sin = _mm512_castsi512_ps(_mm512_xor_epi32(s, sin_sign));
  *out_cos = _mm512_castsi512_ps(_mm512_xor_epi32(c, cos_sign));
}

// The tree of Sum4: halves of 256 bits, of 128 bits, neighbours, pairs.
inline void Sum4(F a, F b, F c, F d, float* out) {
  const F ab = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
  const F cd = _mm512_shuffle_f32x4(c, d, 0x44) + _mm512_shuffle_f32x4(c, d, 0xee);
  const F abcd = _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
  const F pairs = abcd + _mm512_permute_ps(abcd, 0xb1);
  const F sums = pairs + _mm512_permute_ps(pairs, 0x4e);
  const __m512i every_fourth =
      _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(every_fourth, sums)));
}
inline float MaxLane(F v) {
  F m = Max(v, _mm512_shuffle_f32x4(v, v, 0x4e));
  m = Max(m, _mm512_shuffle_f32x4(m, m, 0xb1));
  m = Max(m, _mm512_permute_ps(m, 0x4e));
  return _mm512_cvtss_f32(Max(m, _mm512_permute_ps(m, 0xb1)));
}

// Pairs of rows, of fours, then the 128-bit parts of four and of sixteen.
inline void Transpose(F* rows) {
  F t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  F u[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]);
    const __m512d b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]);
    const __m512d d = _mm512_castps_pd(t[i + 3]);
    u[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    u[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    u[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    u[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const F even_low = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88);
    const F odd_low = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
    const F even_high = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
    const F odd_high = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    rows[i + 4] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    rows[i + 12] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

#if defined(__AVX512BF16__)
// Products of bfloat16 pairs, summed in float: every lane is two of them.
#define LUCID_HAS_PAIRS 1
using Pairs = __m512i;

inline Pairs LoadPairs(const uint32_t* p) {
  return _mm512_loadu_si512(p);
}
inline void StorePairs(uint32_t* p, Pairs v) {
  _mm512_storeu_si512(p, v);
}
inline Pairs SetPairs(const uint32_t* p) {
  return _mm512_set1_epi32(static_cast<int>(*p));
}
// acc + a.first * b.first + a.second * b.second.
inline F DotPairs(Pairs a, Pairs b, F acc) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
// Lane i: (first[i], second[i]), each rounded to nearest even.
inline Pairs PairLanes(F first, F second) {
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both);
}
// Neighbours in pairs: first[0..15], then second[0..15].
inline Pairs PairNeighbours(F first, F second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}
#endif

inline F LoadU8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(LoadBytes16(p)));
}
inline F LoadI8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(LoadBytes16(p)));
}
inline F SetHalf(const uint8_t* p) {
  int16_t half;
  memcpy(&half, p, sizeof(half));
  return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}
// One conversion for both: the pair is repeated over the register, then even and odd lanes are
// doubled.
inline void SetTwoHalves(const uint8_t* p, F* first, F* second) {
  int32_t pair;
  memcpy(&pair, p, sizeof(pair));
  const F both = _mm512_cvtph_ps(_mm256_set1_epi32(pair));
  *first = _mm512_moveldup_ps(both);
  *second = _mm512_movehdup_ps(both);
}
inline F LoadF16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F LoadBf16(const uint8_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline void StoreF16(uint8_t* p, F v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// A 16-entry table of d * q + m in one register: a lookup per 16 values instead of convert and
// multiply.
struct Nibbles {
  F low[1];
  F high[1];
};
inline Nibbles AffineNibbles(const uint8_t* p, F d_low, F m_low, F d_high, F m_high) {
  const F digits = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i q = _mm512_cvtepu8_epi32(LoadBytes16(p));
  return {{_mm512_permutexvar_ps(q, Fma(d_low, digits, m_low))},
          {_mm512_permutexvar_ps(_mm512_srli_epi32(q, 4), Fma(d_high, digits, m_high))}};
}

inline void AffineCrumbs(const uint8_t* p, F d, F m, F* out) {
  const __m512i mask = _mm512_set1_epi32(3);
  const __m512i q = _mm512_cvtepu8_epi32(LoadBytes16(p));
  out[0] = Fma(d, _mm512_cvtepi32_ps(_mm512_and_si512(q, mask)), m);
  out[1] = Fma(d, _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(q, 2), mask)), m);
  out[2] = Fma(d, _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(q, 4), mask)), m);
  out[3] = Fma(d, _mm512_cvtepi32_ps(_mm512_srli_epi32(q, 6)), m);
}
// A table of the four values, four times over: a lookup takes the low 4 bits of its index.
inline void AffineGroup2(const uint8_t* p, F d, F m, F* out) {
  int64_t bytes;
  memcpy(&bytes, p, sizeof(bytes));
  const __m512i q = _mm512_cvtepu8_epi32(_mm_set1_epi64x(bytes));
  const F digits = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  const F table = Fma(d, digits, m);
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
  const __m512i second = _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6);
  out[0] = _mm512_permutexvar_ps(_mm512_srlv_epi32(q, first), table);
  out[1] = _mm512_permutexvar_ps(_mm512_srlv_epi32(q, second), table);
}

// As a float16, whose exponent is 8 larger for the same value.
inline F LoadE4M3(const uint8_t* p) {
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(LoadBytes16(p)), 8);
  const __m256i half =
      _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  const F value = _mm512_cvtph_ps(half) * Set(256.0f);
  return IfLess(Set(448.0f), Abs(value), Set(__builtin_nanf("")), value);
}

inline uint32_t BitOfBytes16(const uint8_t* p, int bit) {
  return _mm_test_epi8_mask(LoadBytes16(p), _mm_set1_epi8(static_cast<char>(1 << bit)));
}
// Two tables, for fifth bit 0 and 1.
inline Nibbles AffineFives(const uint8_t* p, uint32_t low_bits, uint32_t high_bits, F d_low,
                           F m_low, F d_high, F m_high) {
  const F digits = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const F larger = digits + _mm512_set1_ps(16.0f);
  const __m512i low = _mm512_cvtepu8_epi32(LoadBytes16(p));
  const __m512i high = _mm512_srli_epi32(low, 4);
  const F low_base = _mm512_permutexvar_ps(low, Fma(d_low, digits, m_low));
  const F high_base = _mm512_permutexvar_ps(high, Fma(d_high, digits, m_high));
  return {{_mm512_mask_permutexvar_ps(low_base, static_cast<__mmask16>(low_bits), low,
                                      Fma(d_low, larger, m_low))},
          {_mm512_mask_permutexvar_ps(high_base, static_cast<__mmask16>(high_bits), high,
                                      Fma(d_high, larger, m_high))}};
}

}  // namespace
}  // namespace lucid::LUCID_ISA
