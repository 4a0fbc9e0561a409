#include "base/memory_info.h"

#include <gtest/gtest.h>

namespace lucid {
namespace {

TEST(MemoryInfo, ReadsOneLineOfMeminfo) {
  const char text[] = "MemTotal:       24689764 kB\nMemFree:  10 kB\nMemAvailable:   20 kB\n";
  EXPECT_EQ(MeminfoBytes(text, "MemAvailable"), 20 * 1024);
  EXPECT_EQ(MeminfoBytes(text, "MemTotal"), int64_t{24689764} * 1024);
  EXPECT_EQ(MeminfoBytes(text, "Mem"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("MemFree: x kB\n", "MemFree"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("", "MemFree"), std::nullopt);
}

TEST(MemoryInfo, ThisMachineHasSome) {
  EXPECT_GT(AvailableMemory(), 0);
}

}  // namespace
}  // namespace lucid
