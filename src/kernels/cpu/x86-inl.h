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

// 0x10 in byte i where bit i of `bits` is set.
inline __m128i FifthBits(uint32_t bits) {
  const __m128i spread = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m128i select = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  const __m128i bytes = _mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(bits)), spread);
  const __m128i set = _mm_cmpeq_epi8(_mm_and_si128(bytes, select), select);
  return _mm_and_si128(set, _mm_set1_epi8(0x10));
}

// out[i] = low nibble of qs[i] + 16 * bit i of qh, out[16 + i] = high nibble + 16 * bit 16 + i; i
// < 16.
inline void Unpack5(const uint8_t* qs, uint32_t qh, uint8_t* out) {
  const __m128i low_mask = _mm_set1_epi8(0x0f);
  const __m128i q = LoadBytes16(qs);
  const __m128i low = _mm_and_si128(q, low_mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(q, 4), low_mask);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_or_si128(low, FifthBits(qh)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_or_si128(high, FifthBits(qh >> 16)));
}

}  // namespace
}  // namespace lucid::LUCID_ISA
