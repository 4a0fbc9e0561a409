// Causes of times, told apart on round numbers.
#include "account/time_parts.h"

#include <gtest/gtest.h>

namespace lucid {
namespace {

TEST(BeyondReading, AddsUpToWhatReadingDoesNotExplain) {
  const StepTimes::OpSeconds measured{.work = 10, .wait = 2};
  const LeastTimes memory{.reading = 7, .computing = 4, .quantised = true};
  CauseTimes causes = BeyondReading(memory, measured);
  EXPECT_DOUBLE_EQ(causes[Cause::kDequantisation], 0);
  EXPECT_DOUBLE_EQ(causes[Cause::kMemory], 3);
  EXPECT_DOUBLE_EQ(causes[Cause::kSync], 2);
  EXPECT_DOUBLE_EQ(causes.sum() + memory.reading, measured.total());

  const LeastTimes decoding{.reading = 4, .computing = 9, .quantised = true};
  causes = BeyondReading(decoding, measured);
  EXPECT_DOUBLE_EQ(causes[Cause::kDequantisation], 5);
  EXPECT_DOUBLE_EQ(causes[Cause::kMemory], 1);
  EXPECT_DOUBLE_EQ(causes.sum() + decoding.reading, measured.total());

  const LeastTimes plain{.reading = 4, .computing = 9, .quantised = false};
  EXPECT_DOUBLE_EQ(BeyondReading(plain, measured)[Cause::kArithmetic], 5);

  const LeastTimes norm{.reading = 0.5, .computing = 0, .quantised = false};
  causes = BeyondReading(norm, measured);
  EXPECT_DOUBLE_EQ(causes[Cause::kOtherOps], 9.5);
  EXPECT_DOUBLE_EQ(causes.sum() + norm.reading, measured.total());

  // What a cache held was read in less time than the memory takes.
  const LeastTimes cached{.reading = 12, .computing = 3, .quantised = true};
  EXPECT_DOUBLE_EQ(BeyondReading(cached, measured)[Cause::kMemory], -2);
}

TEST(ResidualOf, NamesWhatBoundsTheOp) {
  const StepTimes::OpSeconds measured{.work = 10, .wait = 2};
  const double predicted = 9, barrier = 0.5;
  const LeastTimes memory{.reading = 7, .computing = 4, .quantised = true};
  CauseTimes causes = ResidualOf(memory, measured, predicted, barrier);
  EXPECT_DOUBLE_EQ(causes[Cause::kSync], 1.5);
  EXPECT_DOUBLE_EQ(causes[Cause::kMemory], 1.5);
  EXPECT_DOUBLE_EQ(causes.sum(), measured.total() - predicted);
  EXPECT_EQ(ResidualOf({.reading = 4, .computing = 9, .quantised = true}, {12, 0}, predicted, 0)
                .largest(),
            Cause::kDequantisation);
  EXPECT_EQ(ResidualOf({.reading = 4, .computing = 9, .quantised = false}, {12, 0}, predicted, 0)
                .largest(),
            Cause::kArithmetic);
  EXPECT_EQ(ResidualOf({.reading = 1, .computing = 1}, {12, 0}, predicted, 0).largest(),
            Cause::kUnknown);
  EXPECT_EQ(ResidualOf(memory, {8, 4}, predicted, barrier).largest(), Cause::kSync);
  // Faster than predicted is a residual too.
  causes = ResidualOf(memory, {7, 0}, predicted, barrier);
  EXPECT_DOUBLE_EQ(causes[Cause::kMemory], -2);
  EXPECT_EQ(causes.largest(), Cause::kMemory);
}

TEST(CauseTimes, AddUpByCause) {
  CauseTimes a, b;
  a[Cause::kSync] = 1;
  b[Cause::kSync] = 2;
  b[Cause::kUnknown] = -5;
  a += b;
  EXPECT_DOUBLE_EQ(a[Cause::kSync], 3);
  EXPECT_DOUBLE_EQ(a.sum(), -2);
  EXPECT_EQ(a.largest(), Cause::kUnknown);
  EXPECT_EQ(Name(Cause::kDequantisation), "dequantisation");
}

}  // namespace
}  // namespace lucid
