// Byte-level helpers that AVX2 and AVX-512 share.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace lucid::LUCID_ISA {
namespace {

inline __m128i LoadBytes16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

inline float HalfToFloat(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}

// Of unsigned bytes, which is what the instruction adds: 128 more for each.
inline int32_t SumOf16(const int8_t* p) {
  const __m128i moved = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
                                      _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i sums = _mm_sad_epu8(moved, _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128;
}

}  // namespace
}  // namespace lucid::LUCID_ISA
