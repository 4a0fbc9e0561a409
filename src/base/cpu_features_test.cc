// Reasons for which an instruction set cannot be used, on made-up CPUs and on this one.
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <string>

namespace lucid {
namespace {

// An AVX-512 CPU under a system that saves ymm registers alone, without tiles.
constexpr CpuCapability kCpu[] = {
    {"avx2", "ymm", true, true},       {"bmi1", "", true, true},
    {"avx512f", "zmm", true, false},   {"avx512bw", "zmm", true, false},
    {"amx_tile", "tile", true, false}, {"amx_int8", "tile", false, false},
};
// A CPU with tiles under a system that saves them, but not for this process.
constexpr CpuCapability kRefused[] = {
    {"avx2", "ymm", true, true},
    {"amx_tile", "tile", true, true, false},
    {"amx_bf16", "tile", true, true, false},
};

TEST(WhyUnavailable, IsEmptyForWhatIsThere) {
  EXPECT_EQ(WhyUnavailable("", kCpu), "");
  EXPECT_EQ(WhyUnavailable("avx2", kCpu), "");
  EXPECT_EQ(WhyUnavailable("avx2 bmi1", kCpu), "");
}

TEST(WhyUnavailable, TellsTheCpuFromTheOperatingSystem) {
  EXPECT_EQ(WhyUnavailable("amx_int8", kCpu), "the CPU lacks amx_int8");
  EXPECT_EQ(WhyUnavailable("avx2 avx512f avx512bw", kCpu),
            "the operating system does not save the zmm registers");
  EXPECT_EQ(WhyUnavailable("avx512f amx_tile amx_int8 sse9", kCpu),
            "the CPU lacks amx_int8, sse9; the operating system does not save the zmm and tile "
            "registers");
  EXPECT_EQ(WhyUnavailable("avx2 amx_tile amx_bf16", kRefused),
            "the operating system does not let this process use the tile registers");
  EXPECT_EQ(WhyUnavailable("amx_tile amx_int8", kRefused),
            "the CPU lacks amx_int8; the operating system does not let this process use the tile "
            "registers");
}

TEST(WhyUnavailable, AgreesWithTheCompilersLibraryOnThisCpu) {
#if defined(__x86_64__)
  EXPECT_EQ(WhyUnavailable("avx2 fma").empty(),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(WhyUnavailable("avx512f avx512bw avx512_vnni").empty(),
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vnni"));
#elif defined(__aarch64__)
  EXPECT_EQ(WhyUnavailable(kNeedsNeon), "");
#endif
  // What stacks on a set needs that set.
  EXPECT_TRUE(!WhyUnavailable(kNeedsAvx512).empty() || WhyUnavailable(kNeedsAvx2).empty());
  EXPECT_TRUE(!WhyUnavailable(kNeedsAmx).empty() || WhyUnavailable(kNeedsAvx512Bf16).empty());
  for (const CpuCapability& capability : CpuCapabilities()) {
    const bool usable = capability.in_cpu && capability.enabled && capability.granted;
    EXPECT_EQ(WhyUnavailable(capability.name).empty(), usable) << capability.name;
  }
}

}  // namespace
}  // namespace lucid
