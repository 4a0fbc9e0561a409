// The small float formats that weights are stored in, to and from float32: f16, bf16, f8 e4m3, f8
// e5m2.
//
// All conversions are integer bit work, so they give the same result whatever the compile flags,
// the instruction set and the denormal mode. Narrowing rounds to nearest, ties to even; overflow
// gives infinity; a NaN stays a (quiet) NaN. Sources: IEEE 754-2019; OCP 8-bit floating point
// (OFP8) 1.0.
#pragma once

#include <bit>
#include <cstdint>

// Forced inline: a copy compiled in an AVX-512 object must never be the one that the linker keeps.
#define LUCID_FLOAT_INLINE [[gnu::always_inline]] inline constexpr

namespace lucid {

// Value of the f16 with these bits. Written without branches so that loops over it vectorise.
LUCID_FLOAT_INLINE float F16ToF32(uint16_t half) {
  constexpr uint32_t kExponent = 0x7c00u << 13;  // the f16 exponent field at its f32 place
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & kExponent;
  const uint32_t rebiased = magnitude + (uint32_t{127 - 15} << 23);
  // Infinity and NaN need the largest f32 exponent: rebias once more.
  const uint32_t special = rebiased + (uint32_t{128 - 16} << 23);
  // A denormal's bits below the exponent of 2^-14 read as 2^-14 (1 + m): subtract the 2^-14 that is
  // not there.
  const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(rebiased + (1u << 23)) -
                                                    std::bit_cast<float>(uint32_t{113} << 23));
  uint32_t bits = exponent == kExponent ? special : rebiased;
  bits = exponent == 0 ? denormal : bits;
  return std::bit_cast<float>(bits | (uint32_t{half & 0x8000u} << 16));
}

LUCID_FLOAT_INLINE uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {  // NaN: quiet, with the payload bits that fit
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, half way above the largest f16, and all beyond
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal
    half = (magnitude - (uint32_t{127 - 15} << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude > 0x33000000u) {  // above 2^-25, half the smallest denormal
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126u - (magnitude >> 23);  // 14 to 24
    const uint32_t rest = mantissa & ((1u << shift) - 1u);
    const uint32_t middle = 1u << (shift - 1u);
    half = mantissa >> shift;
    if (rest > middle || (rest == middle && (half & 1u) != 0)) ++half;
  }
  return static_cast<uint16_t>(sign | half);
}

LUCID_FLOAT_INLINE float Bf16ToF32(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

LUCID_FLOAT_INLINE uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// f8 e5m2 is the upper byte of an f16.
LUCID_FLOAT_INLINE float F8E5M2ToF32(uint8_t bits) {
  return F16ToF32(static_cast<uint16_t>(uint32_t{bits} << 8));
}

// f8 e4m3 in the "fn" form: no infinities, NaN only where all seven low bits are set.
LUCID_FLOAT_INLINE float F8E4M3ToF32(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24;
  const uint32_t exponent = (bits >> 3) & 0xfu;
  const uint32_t mantissa = bits & 7u;
  if ((bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((exponent + 127 - 7) << 23) | (mantissa << 20));
}

// To the nearest, ties to even; beyond 448, the largest number, saturating.
LUCID_FLOAT_INLINE uint8_t F32ToF8E4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (magnitude > 0x7f800000u) {  // NaN
    code = 0x7fu;
  } else if (magnitude >= 0x43e00000u) {  // 448
    code = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6: normal
    const uint32_t rebiased = magnitude - (uint32_t{127 - 7} << 23);
    code = (rebiased + 0x7ffffu + ((rebiased >> 20) & 1u)) >> 20;
  } else {  // multiples of 2^-9; adding 2^14 rounds to them, in the low bits of the sum
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) & 0xfu;
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace lucid

#undef LUCID_FLOAT_INLINE
