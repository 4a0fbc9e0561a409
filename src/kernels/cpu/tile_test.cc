// The tile types: EmulatedTiles against the order that TDPBF16PS documents, written out here once
// more; AmxTiles, where the CPU has it, against EmulatedTiles.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/cpu_features.h"

#define LUCID_ISA tile_test
#include "kernels/cpu/tile_emulated.h"
#if defined(__x86_64__)
#include "kernels/cpu/tile_amx.h"
#endif

namespace lucid::tile_test {
namespace {

float ToFloat(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
// Exact ones only.
uint16_t ToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  EXPECT_EQ(bits & 0xffffu, 0u) << x;
  return static_cast<uint16_t>(bits >> 16);
}

// Operands of a block of sums of 2 x 2 tiles.
struct Operands {
  uint16_t a[2][16][32] = {};  // [i][row][number]
  uint16_t b[2][16][32] = {};  // [j][pair][column, the pair's two numbers]
  float sum[2][2][16][16] = {};

  template <typename Fn>
  void Fill(Fn&& number) {
    for (auto* tiles : {a, b}) {
      for (int t = 0; t < 2; ++t) {
        for (int r = 0; r < 16; ++r) {
          for (int n = 0; n < 32; ++n) tiles[t][r][n] = number();
        }
      }
    }
  }
};

template <typename Tiles, int i>
void MultiplyRows(Tiles& tiles, Operands& o) {
  tiles.template LoadSum<i, 0>(o.sum[i][0][0]);
  tiles.template LoadSum<i, 1>(o.sum[i][1][0]);
  tiles.template LoadA<i>(reinterpret_cast<const uint8_t*>(o.a[i]));
  tiles.template LoadB<0>(reinterpret_cast<const uint8_t*>(o.b[0]));
  tiles.template LoadB<1>(reinterpret_cast<const uint8_t*>(o.b[1]));
  tiles.template Multiply<i, 0>();
  tiles.template Multiply<i, 1>();
  tiles.template StoreSum<i, 0>(o.sum[i][0][0]);
  tiles.template StoreSum<i, 1>(o.sum[i][1][0]);
}
template <typename Tiles>
void MultiplyAll(Tiles& tiles, int64_t rows, Operands& o) {
  tiles.Configure(rows);
  MultiplyRows<Tiles, 0>(tiles, o);
  if (rows > 16) MultiplyRows<Tiles, 1>(tiles, o);
  tiles.Release();
}

// One sum by the definition, of numbers that stay far from denormal ones.
float SumOf(const Operands& o, int i, int j, int row, int column) {
  float even = 0;
  float odd = 0;
  for (int k = 0; k < 16; ++k) {
    even = std::fma(ToFloat(o.a[i][row][2 * k]), ToFloat(o.b[j][k][2 * column]), even);
    odd = std::fma(ToFloat(o.a[i][row][2 * k + 1]), ToFloat(o.b[j][k][2 * column + 1]), odd);
  }
  return o.sum[i][j][row][column] + (even + odd);
}

Operands RandomOperands(uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Operands o;
  o.Fill([&] {
    const float x = normal(rng);
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  });
  for (auto& tiles : o.sum) {
    for (auto& tile : tiles) {
      for (auto& row : tile) {
        for (float& x : row) x = 10 * normal(rng);
      }
    }
  }
  return o;
}

TEST(EmulatedTiles, MultiplyFollowsTheOrderOfTheInstruction) {
  EmulatedTiles tiles;
  for (int64_t rows = 1; rows <= 32; ++rows) {
    Operands o = RandomOperands(static_cast<uint32_t>(rows));
    const Operands before = o;
    MultiplyAll(tiles, rows, o);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        for (int m = 0; m < 16; ++m) {
          for (int n = 0; n < 16; ++n) {
            const bool summed = 16 * i + m < rows;
            const float want = summed ? SumOf(before, i, j, m, n) : before.sum[i][j][m][n];
            EXPECT_EQ(o.sum[i][j][m][n], want) << rows << " rows: " << i << j << m << n;
          }
        }
      }
    }
  }
}

// What Multiply makes of a sum and some products that meet in the first row and column: those of
// even places in one chain, those of odd places in the other.
float SumOfProducts(float sum, const std::vector<std::pair<float, float>>& products) {
  Operands o;
  o.sum[0][0][0][0] = sum;
  for (size_t k = 0; k < products.size(); ++k) {
    o.a[0][0][k] = ToBf16(products[k].first);
    o.b[0][k / 2][k % 2] = ToBf16(products[k].second);
  }
  EmulatedTiles tiles;
  MultiplyAll(tiles, 1, o);
  return o.sum[0][0][0][0];
}

TEST(EmulatedTiles, TakesDenormalsForZerosAndMakesNone) {
  constexpr float kDenormal = 0x1p-130f;
  constexpr float kBig = 0x1p120f;
  EXPECT_EQ(SumOfProducts(0, {{kDenormal, kBig}}), 0.0f);
  EXPECT_EQ(SumOfProducts(0, {{kBig, kDenormal}}), 0.0f);
  EXPECT_EQ(SumOfProducts(kDenormal, {{1, 0}}), 0.0f);
  EXPECT_EQ(SumOfProducts(0, {{0x1p-64f, 0x1p-64f}}), 0.0f);
  EXPECT_EQ(SumOfProducts(0, {{0x1p-63f, 0x1p-63f}}), 0x1p-126f);
  // A sum of chains: 1.5 * 2^-126 - 2^-126.
  EXPECT_EQ(SumOfProducts(0, {{0x1.8p-63f, 0x1p-63f}, {-0x1p-63f, 0x1p-63f}}), 0.0f);
  EXPECT_EQ(SumOfProducts(0x1.8p-126f, {{-0x1p-63f, 0x1p-63f}}), 0.0f);
}

TEST(EmulatedTiles, DecidesAfterRoundingWhatIsDenormal) {
  constexpr float kLeast = 0x1p-126f;
  // 1 - 2^-24 times the least normal number has 24 bits: denormal. 1 - 2^-25 rounds to 1.
  EXPECT_EQ(SumOfProducts(0, {{0x1p-63f, 0x1p-63f}, {0, 0}, {-0x1p-75f, 0x1p-75f}}), 0.0f);
  EXPECT_EQ(SumOfProducts(0, {{0x1p-63f, 0x1p-63f}, {0, 0}, {-0x1p-75f, 0x1p-76f}}), kLeast);
}

TEST(EmulatedTiles, RoundsEveryStepToNearestEvenOnce) {
  // 1 + 2^-24 is halfway and goes to 1; what comes then is added to 1, not to the exact sum.
  EXPECT_EQ(SumOfProducts(0, {{1, 1}, {0, 0}, {0x1p-12f, 0x1p-12f}, {0, 0}, {0x1p-12f, 0x1p-12f}}),
            1.0f);
  // (1 + 2^-7)^2 has more bits than bfloat16 and fewer than float32.
  EXPECT_EQ(SumOfProducts(0, {{0x1.02p0f, 0x1.02p0f}}), 0x1.0404p0f);
  // A product of 16 bits that meets a sum is rounded with it, not before.
  EXPECT_EQ(SumOfProducts(0, {{0x1p23f, 1}, {0, 0}, {0x1.02p0f, 0x1.02p-1f}}),
            static_cast<float>(0x1p23 + 0x1.0404p-1));
}

TEST(EmulatedTiles, InfinitiesAndNansAreThoseOfFloats) {
  EXPECT_EQ(SumOfProducts(1, {{INFINITY, 1}}), INFINITY);
  EXPECT_EQ(SumOfProducts(0, {{0x1p100f, 0x1p100f}}), INFINITY);
  EXPECT_TRUE(std::isnan(SumOfProducts(0, {{INFINITY, 0}})));
  EXPECT_TRUE(std::isnan(SumOfProducts(0, {{INFINITY, 1}, {-INFINITY, 1}})));
  EXPECT_TRUE(std::isnan(SumOfProducts(0, {{NAN, 1}})));
}

TEST(EmulatedTilesDeathTest, ATileWithoutRowsStopsTheProgram) {
  const uint8_t bytes[1024] = {};
  EmulatedTiles tiles;
  EXPECT_DEATH(tiles.LoadB<0>(bytes), "");
  tiles.Configure(16);
  tiles.LoadB<0>(bytes);
  EXPECT_DEATH(tiles.LoadA<1>(bytes), "");
}

TEST(AmxTiles, EqualTheEmulationToTheBit) {
#if defined(__x86_64__)
  const std::string unavailable = WhyUnavailable("amx_tile amx_bf16");
  if (!unavailable.empty()) GTEST_SKIP() << "no AMX here: " << unavailable;
  std::mt19937 rng(1);
  AmxTiles amx;
  EmulatedTiles emulated;
  for (int64_t rows = 1; rows <= 32; ++rows) {
    for (const bool ordinary : {true, false}) {
      Operands got = RandomOperands(static_cast<uint32_t>(rows));
      // Any bits: denormals, infinities, NaN, exponents that overflow.
      if (!ordinary) got.Fill([&] { return static_cast<uint16_t>(rng()); });
      Operands want = got;
      MultiplyAll(amx, rows, got);
      MultiplyAll(emulated, rows, want);
      const float* x = &got.sum[0][0][0][0];
      const float* y = &want.sum[0][0][0][0];
      for (int n = 0; n < 2 * 2 * 16 * 16; ++n) {
        const bool same = std::memcmp(x + n, y + n, sizeof(float)) == 0;
        EXPECT_TRUE(same || (std::isnan(x[n]) && std::isnan(y[n])))
            << rows << " rows, " << n << ": " << x[n] << " and " << y[n];
      }
    }
  }
#else
  GTEST_SKIP() << "no AMX here: not an x86-64 CPU";
#endif
}

}  // namespace
}  // namespace lucid::tile_test
