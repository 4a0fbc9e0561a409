#include "base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace lucid {
namespace {

uint32_t Bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

// The definition of IEEE binary16, in double arithmetic.
double ValueOfF16(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsF16NaN(uint16_t bits) {
  return (bits & 0x7fff) > 0x7c00;
}

TEST(Float16, EveryF16HasItsValue) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float value = F16ToF32(half);
    if (IsF16NaN(half)) {
      EXPECT_TRUE(std::isnan(value)) << i;
    } else {
      EXPECT_EQ(Bits(value), Bits(static_cast<float>(ValueOfF16(half)))) << i;
    }
  }
}

TEST(Float16, EveryF16ComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const uint16_t back = F32ToF16(F16ToF32(half));
    if (IsF16NaN(half)) {
      EXPECT_EQ(back, half | 0x200) << i;  // a NaN becomes quiet
    } else {
      EXPECT_EQ(back, half) << i;
    }
  }
}

// Between neighbours: below the middle rounds down, above it up, and the middle itself to the even
// one.
TEST(Float16, NarrowingRoundsToNearestEven) {
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const auto low = static_cast<uint16_t>(i);
    const auto high = static_cast<uint16_t>(i + 1);
    const double next = high == 0x7c00 ? 65536.0 : ValueOfF16(high);
    const auto middle =
        static_cast<float>((ValueOfF16(low) + next) / 2);  // exact: one bit more than f16
    EXPECT_EQ(F32ToF16(middle), low % 2 == 0 ? low : high) << i;
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), low) << i;
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 1e9f)), high) << i;
    EXPECT_EQ(F32ToF16(-middle), (low % 2 == 0 ? low : high) | 0x8000) << i;
  }
}

TEST(Float16, NarrowingHandlesTheExtremes) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(F32ToF16(infinity), 0x7c00);
  EXPECT_EQ(F32ToF16(-infinity), 0xfc00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
  EXPECT_TRUE(IsF16NaN(F32ToF16(std::numeric_limits<float>::quiet_NaN())));
  // A NaN whose payload lies in the bits that are cut must not become infinity.
  EXPECT_TRUE(IsF16NaN(F32ToF16(std::bit_cast<float>(0x7f800001u))));
}

TEST(Float16, BF16RoundsToNearestEven) {
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // middle, even below
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // middle, even above
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f807fffu)), 0x3f80);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0xffffffffu)))));
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (std::isnan(Bf16ToF32(bits))) continue;
    EXPECT_EQ(F32ToBf16(Bf16ToF32(bits)), bits);
  }
}

TEST(Float16, F8HasItsValues) {
  EXPECT_EQ(F8E4M3ToF32(0x7e), 448.0f);
  EXPECT_EQ(F8E4M3ToF32(0x01), 0x1p-9f);
  EXPECT_EQ(F8E4M3ToF32(0x08), 0x1p-6f);
  EXPECT_EQ(F8E4M3ToF32(0xb8), -1.0f);
  EXPECT_TRUE(std::isnan(F8E4M3ToF32(0x7f)));
  EXPECT_TRUE(std::isnan(F8E4M3ToF32(0xff)));
  EXPECT_EQ(F8E5M2ToF32(0x7b), 57344.0f);
  EXPECT_EQ(F8E5M2ToF32(0x01), 0x1p-16f);
  EXPECT_EQ(F8E5M2ToF32(0xfc), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(F8E5M2ToF32(0x7d)));
}

TEST(Float8, EveryE4M3CodeIsItsOwnNearest) {
  for (int code = 0; code < 256; ++code) {
    const float value = F8E4M3ToF32(static_cast<uint8_t>(code));
    EXPECT_EQ(F32ToF8E4M3(value), code) << value;
    EXPECT_EQ(std::isnan(value), (code & 0x7f) == 0x7f);
  }
}

TEST(Float8, E4M3RoundsToNearestTiesToEvenAndSaturates) {
  const auto round = [](float x) { return F8E4M3ToF32(F32ToF8E4M3(x)); };
  EXPECT_EQ(round(1.0625f), 1.0f);   // between 1 (even) and 1.125
  EXPECT_EQ(round(1.1875f), 1.25f);  // between 1.125 and 1.25 (even)
  EXPECT_EQ(round(440.0f), 448.0f);
  EXPECT_EQ(round(1e30f), 448.0f);
  EXPECT_EQ(round(-INFINITY), -448.0f);
  EXPECT_EQ(round(0x1p-10f), 0.0f);      // a tie to zero
  EXPECT_EQ(round(0x1.8p-9f), 0x1p-8f);  // a tie between one and two units
  EXPECT_EQ(round(0x1.fp-7f), 0x1p-6f);  // denormal to the least normal number
  EXPECT_TRUE(std::isnan(round(NAN)));
  // Between all neighbours: the nearer one.
  for (uint8_t code = 0; code < 0x7e; ++code) {
    const float low = F8E4M3ToF32(code);
    const float high = F8E4M3ToF32(static_cast<uint8_t>(code + 1));
    EXPECT_EQ(round(low + (high - low) * 0.49f), low);
    EXPECT_EQ(round(low + (high - low) * 0.51f), high);
    EXPECT_EQ(round((low + high) * 0.5f), code % 2 == 0 ? low : high);
  }
}

}  // namespace
}  // namespace lucid
