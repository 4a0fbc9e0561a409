// Strip vectors of AVX-512 with VNNI: a value for each of the 16 rows of a strip of packed weights
// (kernels/packed.h). One of the dot_*.h files with the same functions; dot_generic.h documents
// them.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/strip-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kRowTile = 6;  // 6 x 2 sums of integers, as many of floats: 24 of 32 registers
constexpr int kStripTile = 2;
constexpr int kDirectRows = 12;
constexpr bool kSignedDot = false;

struct Bytes {
  __m512i v;
};
struct Ints {
  __m512i v;
};

inline Bytes LoadBytes(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline void StoreBytes(uint8_t* p, Bytes b) {
  _mm512_storeu_si512(p, b.v);
}
template <int kShift>
inline Bytes ShiftBits(Bytes b) {
  if constexpr (kShift > 0) return {_mm512_slli_epi16(b.v, kShift)};
  if constexpr (kShift < 0) return {_mm512_srli_epi16(b.v, -kShift)};
  return b;
}
inline Bytes And(Bytes b, uint8_t mask) {
  return {_mm512_and_si512(b.v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
inline Bytes Or(Bytes a, Bytes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline Bytes Flip(Bytes b) {
  return {_mm512_xor_si512(b.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
inline Bytes Lookup(const int8_t* table, Bytes index) {
  const __m512i levels =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(levels, index.v)};
}

inline Ints ZeroInts() {
  return {_mm512_setzero_si512()};
}
inline Ints Dot(Ints sum, Bytes w, Four x) {
  return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(x))};
}
inline Ints TimesHighUnit(Ints a) {
  return {_mm512_slli_epi32(a.v, kLowBits)};
}
inline Ints Add(Ints a, Ints b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline Ints Subtract(Ints a, int32_t b) {
  return {_mm512_sub_epi32(a.v, _mm512_set1_epi32(b))};
}
inline Floats ToFloats(Ints a) {
  return {{_mm512_cvtepi32_ps(a.v)}};
}

}  // namespace
}  // namespace lucid::LUCID_ISA
