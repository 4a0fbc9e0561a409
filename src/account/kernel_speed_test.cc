#include "account/kernel_speed.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lucid {
namespace {

// A small layer; how fast is the machine's affair. The types: with blocks and scales, with nested
// scales, of single bytes, and plain.
TEST(MeasureKernels, MeasuresTypesOfEveryKind) {
  for (const DType type :
       {DType::kQ4_K, DType::kIQ3_S, DType::kNVFP4, DType::kF8E4M3, DType::kBF16}) {
    const Result<KernelSpeed> speed = MeasureKernels(
        type, Numerics::kDefault, "", 2, {.bytes = 1, .dim = 512, .ffn = 768, .prompt = 32});
    ASSERT_TRUE(speed.has_value()) << Name(type) << ": " << speed.error().message;
    EXPECT_EQ(speed->weights, Name(type));
    EXPECT_EQ(speed->numerics, "default");
    EXPECT_EQ(speed->threads, 2);
    EXPECT_EQ(speed->build, KernelBuild());
    EXPECT_EQ(speed->isa, (*SelectTables(""))[0]->isa);
    for (const double value :
         {speed->stream_bytes_per_second, speed->macs_per_second, speed->attention_macs_per_second,
          speed->activation_bytes_per_second, speed->cached_bytes_per_second, speed->op_seconds}) {
      EXPECT_TRUE(std::isfinite(value) && value > 0) << Name(type);
    }
  }
}

TEST(MeasureKernels, RunsTheKernelsOfACeiling) {
  const KernelProbe small{.bytes = 1, .dim = 256, .ffn = 256, .prompt = 8};
  const Result<KernelSpeed> speed =
      MeasureKernels(DType::kQ8_0, Numerics::kFloat, "generic", 1, small);
  ASSERT_TRUE(speed.has_value()) << speed.error().message;
  EXPECT_EQ(speed->isa, "generic");
  EXPECT_EQ(speed->numerics, "float");
  EXPECT_FALSE(MeasureKernels(DType::kQ8_0, Numerics::kFloat, "abacus", 1, small).has_value());
}

}  // namespace
}  // namespace lucid
