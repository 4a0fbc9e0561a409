// The packed form of every type: what is packed reads back with the bits of the type's own codec.
#include "kernels/packed.h"

#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

std::vector<DType> PackedTypes() {
  std::vector<DType> types;
  for (const DTypeInfo& info : AllDTypes()) {
    if (FindPackedForm(info.type) != nullptr) types.push_back(info.type);
  }
  return types;
}

TEST(Packed, CoversTheTypesOfCommonFiles) {
  EXPECT_EQ(PackedTypes().size(), 16u);
}

TEST(Packed, ARowReadsBackWithTheBitsOfItsCodec) {
  for (const DType type : PackedTypes()) {
    const int64_t unit = Info(type).block_elems;
    for (const int64_t n_in : {unit, 3 * unit, 18 * unit, 20 * unit, 37 * unit}) {
      for (const int64_t n_out : {1, 16, 37}) {
        const testing_util::Weights w = RandomWeights(type, n_out, n_in, 5);
        std::vector<std::byte> packed(static_cast<size_t>(PackedBytes(w.tensor)), std::byte{0xa5});
        PackStrips(w.tensor, 0, (n_out + 15) / 16, packed.data());
        std::vector<float> want(static_cast<size_t>(n_in)), got(static_cast<size_t>(n_in));
        for (int64_t row = 0; row < n_out; ++row) {
          Info(type).decode(w.tensor.row(row), want.data(), n_in);
          DecodePackedRow(type, packed.data(), n_in, row, got.data());
          ExpectSameBits(got, want, fmt::format("{} [{}, {}]", Name(type), n_out, n_in));
        }
      }
    }
  }
}

TEST(Packed, TakesTheBytesOfTheFile) {
  for (const DType type : PackedTypes()) {
    Tensor w;
    w.dtype = type;
    w.rank = 2;
    w.shape = {1024, 4096};
    const double ratio = static_cast<double>(PackedBytes(w)) / static_cast<double>(w.bytes());
    EXPECT_GE(ratio, 1.0) << Name(type);
    EXPECT_LE(ratio, type == DType::kQ3_K ? 1.02 : 1.01) << Name(type);
  }
}

TEST(Packed, OtherTypesStayAsTheyLie) {
  for (const DType type : {DType::kIQ2_XS, DType::kTQ1_0, DType::kF8E4M3}) {
    EXPECT_EQ(FindPackedForm(type), nullptr);
  }
}

TEST(Packed, TypesPackAlikeWithinTheirKind) {
  EXPECT_TRUE(PackAlike(DType::kQ4_K, DType::kQ6_K));
  EXPECT_TRUE(PackAlike(DType::kF32, DType::kBF16));
  EXPECT_TRUE(PackAlike(DType::kIQ2_XS, DType::kTQ1_0));
  EXPECT_FALSE(PackAlike(DType::kQ8_0, DType::kBF16));
  EXPECT_FALSE(PackAlike(DType::kQ8_0, DType::kIQ2_XS));
  EXPECT_FALSE(PackAlike(DType::kIQ2_XS, DType::kF32));
}

}  // namespace
}  // namespace lucid
