// The CPU times of /proc/stat, from text and from this machine.
#include "account/cpu_time.h"

#include <gtest/gtest.h>

namespace lucid {
namespace {

TEST(CpuTime, IsReadFromTheFirstLine) {
  const auto time = ParseCpuTime("cpu  100 20 30 400 50 6 7 8 9 1\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  ASSERT_TRUE(time);
  EXPECT_EQ(time->busy, 100 + 20 + 30 + 6 + 7);
  EXPECT_EQ(time->idle, 400 + 50);
  EXPECT_EQ(time->steal, 8);
}

TEST(CpuTime, OtherTextHasNone) {
  for (const char* text : {"", "cpu", "cpu 1 2 3 4 5 6 7", "cpu0 1 2 3 4 5 6 7 8", "intr 1 2"}) {
    EXPECT_FALSE(ParseCpuTime(text)) << text;
  }
}

TEST(CpuTime, SharesAreFractions) {
  const CpuTimeWatch watch;
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < 50'000'000; ++i) sum = sum + i;
  const CpuTimeWatch::Shares shares = watch.Stop();
  EXPECT_GE(shares.steal, 0);
  EXPECT_GE(shares.others, 0);
  EXPECT_LE(shares.steal + shares.others, 1);
}

}  // namespace
}  // namespace lucid
