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

}  // namespace
}  // namespace lucid::LUCID_ISA
