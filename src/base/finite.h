// AllFinite: whether a row of numbers has no infinity and no NaN, about as fast as it can be read.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace lucid {

// Infinities and NaN are the numbers whose exponent's bits are all set. Looked at as integers,
// since compilers keep the order of sums of floats.
inline bool AllFinite(std::span<const float> x) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t found = 0;
  for (const float v : x) {
    found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(v) & kExponent) == kExponent);
  }
  return found == 0;
}

}  // namespace lucid
