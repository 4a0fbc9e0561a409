// Strip vectors of AVX2. See dot_generic.h.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/strip-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kRowTile = 3;
constexpr int kStripTile = 1;
constexpr int kDirectRows = 6;
constexpr bool kSignedDot = true;

struct Bytes {
  __m256i v[2];
};
struct Ints {
  __m256i v[2];
};

inline Bytes LoadBytes(const uint8_t* p) {
  return {{_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
           _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))}};
}
inline void StoreBytes(uint8_t* p, const Bytes& b) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), b.v[0]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), b.v[1]);
}
template <int kShift>
inline Bytes ShiftBits(const Bytes& b) {
  if constexpr (kShift > 0) {
    return {{_mm256_slli_epi16(b.v[0], kShift), _mm256_slli_epi16(b.v[1], kShift)}};
  }
  if constexpr (kShift < 0) {
    return {{_mm256_srli_epi16(b.v[0], -kShift), _mm256_srli_epi16(b.v[1], -kShift)}};
  }
  return b;
}
inline Bytes And(const Bytes& b, uint8_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {{_mm256_and_si256(b.v[0], m), _mm256_and_si256(b.v[1], m)}};
}
inline Bytes Or(const Bytes& a, const Bytes& b) {
  return {{_mm256_or_si256(a.v[0], b.v[0]), _mm256_or_si256(a.v[1], b.v[1])}};
}
inline Bytes Lookup(const int8_t* table, const Bytes& index) {
  const __m256i levels =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {{_mm256_shuffle_epi8(levels, index.v[0]), _mm256_shuffle_epi8(levels, index.v[1])}};
}

inline Ints ZeroInts() {
  return {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}
inline Ints ShiftedInt(int32_t x, int bits) {
  const __m256i all = _mm256_sll_epi32(_mm256_set1_epi32(x), _mm_cvtsi32_si128(bits));
  return {{all, all}};
}

// A run's sums of the even and of the odd pairs of columns, in 16 bits.
struct RunSums {
  __m256i v[2];
};
constexpr int RunGroups(int largest) {
  int groups = 8;
  while (groups > 1 && groups * 2 * largest * 127 > 32767) groups /= 2;
  return groups;
}
inline RunSums BeginRun(const Ints&) {
  return {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}
// Adds in the order that is written: a compiler that forms all products of a run first, to add them
// as a tree, has no registers for them.
inline __m256i AddPairs(__m256i sum, __m256i pairs) {
  sum = _mm256_add_epi16(sum, pairs);
  asm("" : "+x"(sum));
  return sum;
}
inline RunSums Dot(const RunSums& sum, const Bytes& w, Four x) {
  const __m256i four = _mm256_set1_epi32(x);
  return {{AddPairs(sum.v[0], _mm256_maddubs_epi16(w.v[0], four)),
           AddPairs(sum.v[1], _mm256_maddubs_epi16(w.v[1], four))}};
}
// The instruction wants one unsigned operand: signs move to the activations.
inline __m256i PairsOfSigned(__m256i w, __m256i x) {
  return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
inline RunSums DotOfSigned(const RunSums& sum, const Bytes& w, Four x) {
  const __m256i four = _mm256_set1_epi32(x);
  return {{AddPairs(sum.v[0], PairsOfSigned(w.v[0], four)),
           AddPairs(sum.v[1], PairsOfSigned(w.v[1], four))}};
}
inline Ints EndRun(const Ints& before, const RunSums& run) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {{_mm256_add_epi32(before.v[0], _mm256_madd_epi16(run.v[0], ones)),
           _mm256_add_epi32(before.v[1], _mm256_madd_epi16(run.v[1], ones))}};
}

inline Ints TimesHighUnit(const Ints& a) {
  return {{_mm256_slli_epi32(a.v[0], kLowBits), _mm256_slli_epi32(a.v[1], kLowBits)}};
}
inline Ints Add(const Ints& a, const Ints& b) {
  return {{_mm256_add_epi32(a.v[0], b.v[0]), _mm256_add_epi32(a.v[1], b.v[1])}};
}
inline Floats ToFloats(const Ints& a) {
  return {{_mm256_cvtepi32_ps(a.v[0]), _mm256_cvtepi32_ps(a.v[1])}};
}

}  // namespace
}  // namespace lucid::LUCID_ISA
