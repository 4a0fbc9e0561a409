#include "account/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace lucid {
namespace {

using testing::HasSubstr;

Machine Measured() {
  Machine machine;
  machine.cpu = "A CPU";
  machine.measured_at = "2026-01-31T12:00:00Z";
  machine.memory_bytes = 1000;
  machine.reads = {{.bytes = 100,
                    .threads = 2,
                    .huge_pages = true,
                    .bytes_per_second = 50,
                    .fastest = 60,
                    .how = "loop"}};
  machine.peaks = {
      {"float32", "avx2", 2, 10}, {"bfloat16", "avx512bf16", 2, 20}, {"int8", "avx512vnni", 2, 70}};
  machine.kernels = {{.weights = "Q4_K",
                      .numerics = "default",
                      .threads = 2,
                      .stream_bytes_per_second = 40,
                      .macs_per_second = 15,
                      .attention_macs_per_second = 5,
                      .activation_bytes_per_second = 100,
                      .op_seconds = 0.5},
                     {.weights = "Q4_K", .numerics = "default", .threads = 1}};
  return machine;
}

std::string WriteText(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(FindHardware, KnowsDataSheets) {
  for (const std::string& name : HardwareNames()) {
    const Hardware hardware = FindHardware(name, 1, 1, false).value();
    EXPECT_GT(hardware.bytes_per_second, 1e11) << name;
    EXPECT_GT(hardware.memory_bytes, 0) << name;
    EXPECT_GT(hardware.Ridge(), 10) << name;
    EXPECT_TRUE(hardware.kernels.empty()) << name;
  }
  const Hardware h100 = FindHardware("h100", 1, 1, false).value();
  EXPECT_NEAR(h100.Ridge(), 295, 0.5);
  EXPECT_EQ(h100.FlopsFor(DType::kQ4_K), h100.FlopsFor(DType::kBF16));
  EXPECT_DOUBLE_EQ(h100.FlopsFor(DType::kF32), 66.9e12);
  EXPECT_DOUBLE_EQ(h100.FlopsFor(DType::kF8E4M3), 1978.9e12);
}

TEST(FindHardware, TakesTheNearestPeakThatIsKnown) {
  const Hardware m2 = FindHardware("m2-ultra", 1, 1, false).value();
  EXPECT_DOUBLE_EQ(m2.FlopsFor(DType::kF16), 27.2e12);
  EXPECT_DOUBLE_EQ(m2.FlopsFor(DType::kF8E4M3), 27.2e12);
}

TEST(HardwareOf, IsWhatWasMeasuredWithSoManyThreads) {
  const Hardware hardware = HardwareOf(Measured(), 2, 100, false).value();
  EXPECT_EQ(hardware.name, "A CPU, 2 threads");
  EXPECT_EQ(hardware.bytes_per_second, 50);
  EXPECT_EQ(hardware.FlopsFor(DType::kF16), 2 * 35);  // two products of 8 bits for one of 16
  EXPECT_EQ(hardware.FlopsFor(DType::kF32), 2 * 10);
  EXPECT_EQ(HardwareOf(Measured(), 2, 100, true).value().FlopsFor(DType::kF16), 2 * 70);
  ASSERT_EQ(hardware.kernels.size(), 1U);
  EXPECT_EQ(hardware.kernels[0].macs_per_second, 15);
  EXPECT_THAT(HardwareOf(Measured(), 3, 100, false).error().message,
              HasSubstr("no figures of A CPU for 3 threads"));
}

TEST(FindHardware, ReadsFiles) {
  const std::string stored = WriteText("machine.json", ToJson(Measured()).dump());
  EXPECT_EQ(FindHardware(stored, 2, 100, false).value().bytes_per_second, 50);
  const std::string user = WriteText(
      "card.json", R"({"name": "Mine", "read_gb_per_s": 2, "tflop_per_s": {"8 bit": 3}})");
  const Hardware mine = FindHardware(user, 1, 1, false).value();
  EXPECT_EQ(mine.name, "Mine");
  EXPECT_EQ(mine.bytes_per_second, 2e9);
  EXPECT_EQ(mine.memory_bytes, 0);
  EXPECT_EQ(mine.FlopsFor(DType::kF16), 3e12);
  const std::string bad = WriteText("bad.json", R"({"name": "Mine", "read_gb_per_s": "fast"})");
  EXPECT_THAT(FindHardware(bad, 1, 1, false).error().message,
              HasSubstr("\"read_gb_per_s\" is missing or not a number above 0"));
  EXPECT_THAT(FindHardware("no such file", 1, 1, false).error().message,
              HasSubstr("there is no hardware 'no such file': it is this, a100, h100"));
}

}  // namespace
}  // namespace lucid
