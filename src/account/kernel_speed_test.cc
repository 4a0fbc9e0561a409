#include "account/kernel_speed.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lucid {
namespace {

// One layer; how fast is the machine's affair. The types: with blocks and scales, with nested
// scales, of single bytes, and plain.
TEST(MeasureKernels, MeasuresTypesOfEveryKind) {
  for (const DType type :
       {DType::kQ4_K, DType::kIQ3_S, DType::kNVFP4, DType::kF8E4M3, DType::kBF16}) {
    const Result<KernelSpeed> speed = MeasureKernels(type, Numerics::kDefault, 2, /*bytes=*/1);
    ASSERT_TRUE(speed.has_value()) << Name(type) << ": " << speed.error().message;
    EXPECT_EQ(speed->weights, Name(type));
    EXPECT_EQ(speed->numerics, "default");
    EXPECT_EQ(speed->threads, 2);
    for (const double value :
         {speed->stream_bytes_per_second, speed->macs_per_second, speed->attention_macs_per_second,
          speed->activation_bytes_per_second, speed->op_seconds}) {
      EXPECT_TRUE(std::isfinite(value) && value > 0) << Name(type);
    }
  }
}

}  // namespace
}  // namespace lucid
