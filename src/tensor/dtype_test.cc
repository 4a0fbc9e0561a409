#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace lucid {
namespace {

struct TypeFact {
  uint32_t number;
  const char* name;
  int64_t elems, bytes;
};

// GGUF type numbers and block sizes as the gguf Python package 0.19.0 lists them, but for Q8_1,
// whose block has 36 bytes in every program that uses it.
constexpr TypeFact kFacts[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
};

TEST(DType, NumbersAndSizesAreThoseOfGguf) {
  for (const TypeFact& fact : kFacts) {
    const std::optional<DType> type = DTypeFromGguf(fact.number);
    ASSERT_TRUE(type) << fact.name;
    EXPECT_EQ(Info(*type).name, fact.name);
    EXPECT_EQ(Info(*type).block_elems, fact.elems) << fact.name;
    EXPECT_EQ(Info(*type).block_bytes, fact.bytes) << fact.name;
    EXPECT_EQ(static_cast<uint32_t>(*type), fact.number);
  }
}

TEST(DType, OtherNumbersAreNoTypes) {
  std::set<uint32_t> known;
  for (const TypeFact& fact : kFacts) known.insert(fact.number);
  for (uint32_t number = 0; number < 300; ++number) {
    EXPECT_EQ(DTypeFromGguf(number).has_value(), known.contains(number)) << number;
  }
  EXPECT_FALSE(DTypeFromGguf(0xffffffffu));
  EXPECT_FALSE(DTypeFromGguf(0x80000000u));
}

TEST(DType, NamesAreFoundInAnyCase) {
  for (const DTypeInfo& info : AllDTypes()) {
    EXPECT_EQ(DTypeFromName(info.name), info.type);
    std::string lower(info.name);
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(DTypeFromName(lower), info.type);
  }
  EXPECT_FALSE(DTypeFromName("Q9_9"));
  EXPECT_FALSE(DTypeFromName(""));
}

TEST(DType, RowsAreInTheOrderOfTheEnum) {
  for (size_t i = 1; i < AllDTypes().size(); ++i) {
    EXPECT_LT(static_cast<int>(AllDTypes()[i - 1].type), static_cast<int>(AllDTypes()[i].type));
  }
}

std::vector<float> RoundTrip(DType type, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> stored(static_cast<size_t>(RowBytes(type, n)));
  std::vector<float> back(values.size());
  Info(type).encode(values.data(), stored.data(), n);
  Info(type).decode(stored.data(), back.data(), n);
  return back;
}

// Smooth values with both signs and magnitude up to `top`.
std::vector<float> Wave(float top) {
  std::vector<float> values(512);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = top * std::sin(0.37f * static_cast<float>(i));
  return values;
}

struct ErrorBound {
  DType type;
  float relative_to_top;
};

// Half a step of the coarsest block, plus the rounding of the f16 scale.
constexpr ErrorBound kBounds[] = {
    {DType::kF32, 0.0f},     {DType::kF64, 0.0f},    {DType::kF16, 0x1p-11f},
    {DType::kBF16, 0x1p-8f}, {DType::kQ8_0, 0.005f}, {DType::kQ5_0, 0.07f},
    {DType::kQ5_1, 0.04f},   {DType::kQ4_0, 0.13f},  {DType::kQ4_1, 0.075f},
    {DType::kMXFP4, 0.26f},  {DType::kTQ1_0, 0.51f}, {DType::kTQ2_0, 0.51f},
};

TEST(DType, EncodingKeepsValuesWithinTheStepOfTheType) {
  for (const float top : {0.1f, 1.0f, 900.0f}) {
    const std::vector<float> values = Wave(top);
    for (const ErrorBound& bound : kBounds) {
      const std::vector<float> back = RoundTrip(bound.type, values);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_LE(std::fabs(back[i] - values[i]), bound.relative_to_top * top)
            << Name(bound.type) << " " << i;
      }
    }
  }
}

TEST(DType, EncodersListedAreExactlyThoseTested) {
  std::set<DType> tested;
  for (const ErrorBound& bound : kBounds) tested.insert(bound.type);
  for (const DTypeInfo& info : AllDTypes())
    EXPECT_EQ(info.encode != nullptr, tested.contains(info.type)) << info.name;
}

TEST(DType, ZerosStayZeroAndNothingFiniteBecomesNaN) {
  std::vector<float> tiny = Wave(1.0f);
  for (float& value : tiny) value *= 1e-40f;  // the inverse of such a scale overflows
  for (const ErrorBound& bound : kBounds) {
    for (const float value : RoundTrip(bound.type, std::vector<float>(512, 0.0f)))
      EXPECT_EQ(value, 0.0f);
    for (const float value : RoundTrip(bound.type, tiny))
      EXPECT_LE(std::fabs(value), 1e-38f) << Name(bound.type);
  }
}

// Any bytes are a valid block: decoding must not read or write out of bounds, and give the same
// twice.
TEST(DType, EveryDecoderTakesAnyBytesAtAnyAddress) {
  uint32_t state = 1;
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.decode == nullptr) continue;
    constexpr int64_t kBlocks = 9;
    const auto size = static_cast<size_t>(info.block_bytes * kBlocks);
    std::vector<std::byte> bytes(size + 1);
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
    std::vector<std::byte> moved(bytes.begin() + 1, bytes.end());
    std::vector<float> at_odd(static_cast<size_t>(info.block_elems * kBlocks));
    std::vector<float> at_even(at_odd.size());
    info.decode(bytes.data() + 1, at_odd.data(), info.block_elems * kBlocks);
    info.decode(moved.data(), at_even.data(), info.block_elems * kBlocks);
    for (size_t i = 0; i < at_odd.size(); ++i) {
      EXPECT_TRUE(at_odd[i] == at_even[i] || (std::isnan(at_odd[i]) && std::isnan(at_even[i])))
          << info.name;
    }
  }
}

TEST(DType, EncodersTakeInfinityAndNaN) {
  std::vector<float> values = Wave(1.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[300] = std::numeric_limits<float>::infinity();
  for (const ErrorBound& bound : kBounds)
    EXPECT_EQ(RoundTrip(bound.type, values).size(), values.size());
}

}  // namespace
}  // namespace lucid
