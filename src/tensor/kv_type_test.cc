// The codecs of the cache: how far a value may move, odd lengths, and rows whose scales could
// overflow or vanish.
#include "tensor/kv_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/float16.h"

namespace lucid {
namespace {

constexpr int64_t kDims[] = {1, 7, 16, 32, 33, 64, 80, 128};

std::vector<float> RandomRow(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& v : row) v = normal(rng);
  return row;
}

std::vector<float> RoundTrip(KvType type, const std::vector<float>& row) {
  const auto dim = static_cast<int64_t>(row.size());
  const auto bytes = static_cast<size_t>(KvRowBytes(type, dim));
  std::vector<std::byte> stored(bytes + 1, std::byte{0x5a});
  EncodeKvRow(type, row.data(), stored.data(), dim);
  EXPECT_EQ(stored[bytes], std::byte{0x5a}) << Name(type) << " writes beyond its row";
  std::vector<float> out(row.size(), NAN);
  DecodeKvRow(type, stored.data(), out.data(), dim);
  return out;
}

// Most that a value may move: half a step of the code that holds it.
float Tolerance(KvType type, const std::vector<float>& row, size_t i) {
  const float magnitude = std::fabs(row[i]);
  const auto group = [&](float levels) {
    const size_t begin = i / kKvGroup * kKvGroup;
    const size_t end = std::min(row.size(), begin + kKvGroup);
    const auto [low, high] = std::minmax_element(row.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 row.begin() + static_cast<std::ptrdiff_t>(end));
    // The minimum is rounded down by at most 2^-10 of it, the scale up by as much.
    const float span = *high - *low + std::fabs(*low) * 0x1p-10f;
    return span / levels * 0.5f * 1.002f;
  };
  switch (type) {
    case KvType::kF32:
      return 0;
    case KvType::kF16:
      return magnitude * 0x1p-11f;
    case KvType::kBF16:
      return magnitude * 0x1p-8f;
    case KvType::kInt8: {
      float most = 0;
      for (const float v : row) most = std::max(most, std::fabs(v));
      return most / 127 * 0.5f * 1.002f;
    }
    case KvType::kFp8: {
      // With the plain scale; the chosen one is no worse over the row, and at most twice as coarse.
      float most = 0;
      for (const float v : row) most = std::max(most, std::fabs(v));
      return std::max(magnitude * 0x1p-4f * 1.002f, 2 * most / 448 * 0x1p-10f * 1.002f);
    }
    case KvType::kInt4:
      return group(15);
    case KvType::kInt2:
    case KvType::kKivi2:
      return group(3);
  }
  return 0;
}

TEST(KvType, NamesGoBothWays) {
  EXPECT_EQ(AllKvTypes().size(), 8u);
  for (const KvType type : AllKvTypes()) EXPECT_EQ(KvTypeFromName(Name(type)), type);
  EXPECT_EQ(KvTypeFromName("q8_0"), std::nullopt);
}

TEST(KvType, BytesCountTheScales) {
  EXPECT_EQ(KvRowBytes(KvType::kF32, 128), 512);
  EXPECT_EQ(KvRowBytes(KvType::kF16, 128), 256);
  EXPECT_EQ(KvRowBytes(KvType::kBF16, 7), 14);
  EXPECT_EQ(KvRowBytes(KvType::kInt8, 128), 136);
  EXPECT_EQ(KvRowBytes(KvType::kInt8, 33), 33 + 2 * 2);
  EXPECT_EQ(KvRowBytes(KvType::kFp8, 128), 130);
  EXPECT_EQ(KvRowBytes(KvType::kInt4, 128), 4 * (4 + 16));
  EXPECT_EQ(KvRowBytes(KvType::kInt4, 33), (4 + 16) + (4 + 1));
  EXPECT_EQ(KvRowBytes(KvType::kInt2, 128), 4 * (4 + 8));
  EXPECT_EQ(KvRowBytes(KvType::kInt2, 7), 4 + 2);
  EXPECT_EQ(KvRowBytes(KvType::kKivi2, 128), KvRowBytes(KvType::kInt2, 128));
  EXPECT_EQ(KvHeadBytes(KvType::kInt8, true, 64, 16), 16 * 68);
  EXPECT_EQ(KvHeadBytes(KvType::kKivi2, true, 64, 32), 64 * (4 + 8));
  EXPECT_EQ(KvHeadBytes(KvType::kKivi2, false, 64, 32), 32 * 2 * (4 + 8));
  for (const KvType type : AllKvTypes()) EXPECT_EQ(KvRowBytes(type, 0), 0) << Name(type);
}

TEST(KvType, ValuesMoveByHalfAStepAtMost) {
  for (const KvType type : AllKvTypes()) {
    for (const int64_t dim : kDims) {
      // The smallest rows have denormal scales.
      for (const float scale : {1.0f, 100.0f, 1e-2f, 1e-4f}) {
        const std::vector<float> row = RandomRow(dim, static_cast<uint32_t>(dim), scale);
        const std::vector<float> out = RoundTrip(type, row);
        for (size_t i = 0; i < row.size(); ++i) {
          // Denormal float16 scales and values: steps of 2^-24, counted once per level.
          const bool has_half = type != KvType::kF32 && type != KvType::kBF16;
          const float slack = has_half ? 0x1p-24f * (type == KvType::kInt8 ? 64.0f : 8.0f) : 0.0f;
          ASSERT_LE(std::fabs(out[i] - row[i]), Tolerance(type, row, i) + slack)
              << Name(type) << " dim " << dim << " scale " << scale << " at " << i;
        }
      }
    }
  }
}

TEST(KvType, SmallRowsKeepTheirLargestValue) {
  // 1e-4 / 127 is 13.2 steps of the denormal float16 numbers: rounding the scale to nearest would
  // cut the largest value.
  const std::vector<float> row = {1e-4f, -1e-4f, 5e-5f, 0.0f};
  const std::vector<float> out = RoundTrip(KvType::kInt8, row);
  for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(out[i], row[i], 4.3e-7f) << i;
}

TEST(KvType, ZerosStayZeros) {
  for (const KvType type : AllKvTypes()) {
    for (const int64_t dim : kDims) {
      const std::vector<float> zeros(static_cast<size_t>(dim), 0.0f);
      EXPECT_EQ(RoundTrip(type, zeros), zeros) << Name(type) << " dim " << dim;
    }
  }
}

TEST(KvType, HugeRowsSaturate) {
  for (const KvType type : {KvType::kInt8, KvType::kFp8, KvType::kInt4, KvType::kInt2}) {
    for (const float most : {1e6f, 1e9f, 3e38f, INFINITY}) {
      std::vector<float> row = RandomRow(64, 1, most / 8);
      if (std::isinf(most)) row = RandomRow(64, 1, 1000.0f);
      row[3] = most;
      row[40] = -most;
      const std::vector<float> out = RoundTrip(type, row);
      for (const float v : out) EXPECT_TRUE(std::isfinite(v)) << Name(type) << " " << most;
      EXPECT_GT(out[3], 0) << Name(type);
      EXPECT_LT(out[40], 0) << Name(type);
    }
  }
  std::vector<float> row = {1e6f, -2.5e5f, 0.0f};
  const std::vector<float> out = RoundTrip(KvType::kInt8, row);  // the scale still fits
  EXPECT_NEAR(out[0], 1e6f, 8e3f);
  EXPECT_NEAR(out[1], -2.5e5f, 8e3f);
}

TEST(KvType, ANanDoesNotSpoilItsNeighbours) {
  for (const KvType type : AllKvTypes()) {
    std::vector<float> row = RandomRow(32, 2);
    row[5] = NAN;
    const std::vector<float> out = RoundTrip(type, row);
    EXPECT_NEAR(out[4], row[4], 1.0f) << Name(type);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE(i == 5 || std::isfinite(out[i])) << Name(type);
    }
  }
}

TEST(Fp8, TheScaleLowersTheErrorOfTheRow) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> row = RandomRow(64, seed, 3.0f);
    const std::vector<float> out = RoundTrip(KvType::kFp8, row);
    float most = 0;
    for (const float v : row) most = std::max(most, std::fabs(v));
    double error = 0, plain = 0;
    float scale = F16ToF32(F32ToF16(most / 448));  // as it can be stored, not below
    if (scale < most / 448) scale = F16ToF32(static_cast<uint16_t>(F32ToF16(most / 448) + 1));
    for (size_t i = 0; i < row.size(); ++i) {
      const float rounded = scale * F8E4M3ToF32(F32ToF8E4M3(row[i] / scale));
      error += std::pow(static_cast<double>(out[i] - row[i]), 2);
      plain += std::pow(static_cast<double>(rounded - row[i]), 2);
    }
    EXPECT_LE(error, plain * 1.0001) << seed;
  }
}

TEST(Fp8, OneValueIsMetAlmostExactly) {
  for (const float x : {1.0f, -3.14159f, 448.0f, 0.1f, 5000.0f}) {
    EXPECT_NEAR(RoundTrip(KvType::kFp8, {x})[0], x, std::fabs(x) * 0x1p-10f);
  }
}

TEST(Kivi, KeysArePackedPerChannel) {
  for (const int64_t dim : {int64_t{7}, int64_t{33}, int64_t{64}}) {
    for (const int64_t block : {int64_t{4}, int64_t{16}, int64_t{64}}) {
      const int64_t stride = dim + 3;
      std::vector<float> keys = RandomRow(block * stride, 4);
      // Channels of very different size, what keys per channel are for; one constant, one zero.
      for (int64_t p = 0; p < block; ++p) {
        keys[static_cast<size_t>(p * stride)] *= 50.0f;
        keys[static_cast<size_t>(p * stride + 1)] = 1.75f;
        keys[static_cast<size_t>(p * stride + 2)] = 0.0f;
      }
      const auto bytes = static_cast<size_t>(KvHeadBytes(KvType::kKivi2, true, dim, block));
      std::vector<std::byte> stored(bytes + 1, std::byte{0x5a});
      EncodeKiviKeys(keys.data(), stride, stored.data(), dim, block);
      EXPECT_EQ(stored[bytes], std::byte{0x5a});
      std::vector<float> out(keys.size(), NAN);
      DecodeKiviKeys(stored.data(), out.data(), stride, dim, block);
      for (int64_t c = 0; c < dim; ++c) {
        float low = INFINITY, high = -INFINITY;
        for (int64_t p = 0; p < block; ++p) {
          const float key = keys[static_cast<size_t>(p * stride + c)];
          low = std::min(low, key);
          high = std::max(high, key);
        }
        const float half_step = (high - low + std::fabs(low) * 0x1p-10f) / 6 * 1.002f;
        for (int64_t p = 0; p < block; ++p) {
          const auto at = static_cast<size_t>(p * stride + c);
          ASSERT_LE(std::fabs(out[at] - keys[at]), half_step + 1e-7f) << dim << ' ' << block;
        }
      }
      for (int64_t p = 0; p < block; ++p) {
        EXPECT_EQ(out[static_cast<size_t>(p * stride + 1)], 1.75f);
        EXPECT_EQ(out[static_cast<size_t>(p * stride + 2)], 0.0f);
        EXPECT_TRUE(std::isnan(out[static_cast<size_t>(p * stride + dim)])) << "beyond the row";
      }
    }
  }
}

TEST(Kivi, HugeKeysGiveNoInfinity) {
  std::vector<float> keys = RandomRow(16 * 8, 5, 1e6f);
  keys[0] = INFINITY;
  std::vector<std::byte> stored(static_cast<size_t>(KvHeadBytes(KvType::kKivi2, true, 8, 16)));
  EncodeKiviKeys(keys.data(), 8, stored.data(), 8, 16);
  std::vector<float> out(keys.size());
  DecodeKiviKeys(stored.data(), out.data(), 8, 8, 16);
  for (const float v : out) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace lucid
