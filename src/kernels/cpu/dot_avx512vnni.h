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
inline Ints ShiftedInt(int32_t x, int bits) {
  return {_mm512_sll_epi32(_mm512_set1_epi32(x), _mm_cvtsi32_si128(bits))};
}
using RunSums = Ints;
constexpr int RunGroups(int) {
  return 8;
}
inline RunSums BeginRun(Ints before) {
  return before;
}
inline Ints EndRun(Ints, RunSums run) {
  return run;
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
inline Floats ToFloats(Ints a) {
  return {{_mm512_cvtepi32_ps(a.v)}};
}

// --- folded scales (folded_panel-inl.h) ---

// The four bytes at q, or the integer, for each of the 16 rows.
inline Bytes FourOfAll(const int8_t* q) {
  return {_mm512_set1_epi32(LoadFour(q))};
}
inline Ints IntsOfAll(const uint8_t* p) {
  int32_t i;
  memcpy(&i, p, sizeof(i));
  return {_mm512_set1_epi32(i)};
}
// sum += the dot product of unsigned w and signed x. In a loop around intrinsics GCC 12 copies
// every sum to another register and back, which takes as long as the products.
[[gnu::always_inline]] inline void AddDot(Ints& sum, Bytes w, Bytes x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(w.v), "v"(x.v));
}

// Of codes c, value / unit = scaled * (c - taken_off) + added: 16-bit numbers for each row, twice.
struct Factors {
  __m512i scale;
  __m512i add;
};
inline __m512i BothHalves(__m512i a) {
  return _mm512_mask_mov_epi16(a, 0xaaaaaaaau, _mm512_slli_epi32(a, 16));
}
inline Factors FactorsOf(const Floats& scaled, const Floats& added, int32_t taken_off) {
  const __m512i scale = _mm512_cvtps_epi32(scaled.v[0]);
  const __m512i off = _mm512_mullo_epi16(scale, _mm512_set1_epi32(taken_off));
  const __m512i half_and_128 = _mm512_set1_epi32(128 * 256 + 128);
  const __m512i add = _mm512_add_epi32(_mm512_cvtps_epi32(added.v[0]), half_and_128);
  return {BothHalves(scale), BothHalves(_mm512_sub_epi16(add, off))};
}
// 128 + value / unit of 64 codes, in 8.8 bits, rounded to 8.
inline Bytes FoldCodes(Bytes codes, const Factors& f) {
  const __m512i low = _mm512_set1_epi16(0xff);
  const __m512i even = _mm512_mullo_epi16(_mm512_and_si512(codes.v, low), f.scale);
  const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(codes.v, 8), f.scale);
  const __m512i even_byte = _mm512_srli_epi16(_mm512_add_epi16(even, f.add), 8);
  const __m512i odd_byte = _mm512_add_epi16(odd, f.add);
  return {_mm512_mask_mov_epi8(even_byte, 0xaaaaaaaaaaaaaaaau, odd_byte)};
}

}  // namespace
}  // namespace lucid::LUCID_ISA
