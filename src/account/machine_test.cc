// Machines as JSON, and what is found in them.
#include "account/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "base/topology.h"

namespace lucid {
namespace {

using testing::HasSubstr;

Machine MakeMachine() {
  Machine machine;
  machine.cpu = "CPU \"X\"";
  machine.cpus = 4;
  machine.cores = 2;
  machine.l3_bytes = 32 << 20;
  machine.memory_bytes = int64_t{20} << 30;
  machine.huge_pages = "madvise";
  machine.measured_at = "2026-01-31T12:00:00Z";
  machine.seconds = 9.5;
  machine.steal = 0.01;
  machine.other_load = 0.25;
  machine.notes = {"memory is short"};
  machine.reads = {{350'000'000, 1, true, 42e9, 41e9, "avx512"},
                   {350'000'000, 2, true, 50e9, 49e9, "avx512, 4 streams"},
                   {350'000'000, 2, false, 48e9, 47e9, "avx512"},
                   {int64_t{4} << 30, 2, true, 45e9, 44e9, "avx512"}};
  machine.peaks = {{"float32", "avx512", 1, 130e9},
                   {"float32", "avx512", 2, 250e9},
                   {"int8", "avx512vnni", 1, 500e9},
                   {"int8", "avx512vnni", 2, 1000e9}};
  machine.kernels = {{.weights = "Q4_K",
                      .numerics = "default",
                      .threads = 2,
                      .isa = "avx512vnni",
                      .build = "0123456789abcdef",
                      .stream_bytes_per_second = 40e9,
                      .cached_bytes_per_second = 120e9,
                      .macs_per_second = 500e9,
                      .attention_macs_per_second = 200e9,
                      .token_attention_macs_per_second = 30e9,
                      .activation_bytes_per_second = 100e9,
                      .op_seconds = 1e-6}};
  machine.clocks = {{1, 4.2e9}, {2, 4.1e9}};
  machine.barriers = {{2, 6e-8}};
  machine.refused = {{"amx", "the CPU lacks amx_tile"}};
  return machine;
}

TEST(MachineJson, ComesBackAsItWas) {
  const Machine machine = MakeMachine();
  const std::string text = ToJson(machine).dump(2);
  const Machine back = MachineFromJson(text, "x").value();
  EXPECT_EQ(ToJson(back).dump(2), text);
  EXPECT_EQ(back.cpu, machine.cpu);
  EXPECT_EQ(back.cpus, 4);
  EXPECT_EQ(back.cores, 2);
  EXPECT_EQ(back.l3_bytes, machine.l3_bytes);
  EXPECT_EQ(back.other_load, 0.25);
  EXPECT_EQ(back.notes, machine.notes);
  ASSERT_EQ(back.reads.size(), 4u);
  EXPECT_EQ(back.reads[1].how, "avx512, 4 streams");
  EXPECT_FALSE(back.reads[2].huge_pages);
  EXPECT_EQ(back.reads[3].bytes_per_second, 45e9);
  ASSERT_EQ(back.kernels.size(), 1u);
  EXPECT_EQ(back.kernels[0].weights, "Q4_K");
  EXPECT_EQ(back.kernels[0].op_seconds, 1e-6);
  EXPECT_EQ(back.kernels[0].isa, "avx512vnni");
  EXPECT_EQ(back.kernels[0].build, "0123456789abcdef");
  ASSERT_EQ(back.peaks.size(), 4u);
  EXPECT_EQ(back.peaks[2].isa, "avx512vnni");
  EXPECT_EQ(back.clocks[1].value, 4.1e9);
  EXPECT_EQ(back.barriers[0].threads, 2);
  EXPECT_EQ(back.refused[0].reason, "the CPU lacks amx_tile");
}

TEST(MachineJson, EveryMemberMustBeThereWithItsType) {
  const nlohmann::ordered_json whole = ToJson(MakeMachine());
  for (const auto& [name, value] : whole.items()) {
    auto lacking = whole;
    lacking.erase(name);
    auto wrong = whole;
    wrong[name] = nullptr;
    for (const auto& json : {lacking, wrong}) {
      const auto read = MachineFromJson(json.dump(), "machine.json");
      if (name == "kernels" && !json.contains(name)) {  // of an older version
        EXPECT_TRUE(read && read->kernels.empty());
        continue;
      }
      ASSERT_FALSE(read) << name;
      EXPECT_EQ(read.error().code, ErrorCode::kInvalidFile);
      EXPECT_THAT(read.error().message, HasSubstr("machine.json: \"" + name + "\""));
    }
  }
  auto inside = whole;
  inside["reads"][1]["bytes"] = "many";
  EXPECT_THAT(MachineFromJson(inside.dump(), "x").error().message, HasSubstr("\"bytes\""));
  inside["reads"] = {1, 2};
  EXPECT_FALSE(MachineFromJson(inside.dump(), "x"));
  for (const char* text : {"", "{", "[]", "3", "{}"}) EXPECT_FALSE(MachineFromJson(text, "x"));
}

TEST(MachineFile, IsKeptAndRead) {
  const std::string folder = testing::TempDir() + "/lucid_machine_test";
  std::filesystem::remove_all(folder);
  const std::string path = folder + "/deeper/machine.json";
  EXPECT_EQ(LoadMachine(path).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(SaveMachine(MakeMachine(), path));
  EXPECT_EQ(LoadMachine(path).value().reads.size(), 4u);
  std::filesystem::remove_all(folder);
}

TEST(Machine, IsThisOneByModelAndCounts) {
  Machine machine;
  EXPECT_FALSE(IsThisMachine(machine));
  machine.cpu = CpuModelName();
  machine.cpus = AllowedCpuCount();
  machine.cores = PhysicalCoreCount();
  EXPECT_TRUE(IsThisMachine(machine));
  ++machine.cores;
  EXPECT_FALSE(IsThisMachine(machine));
}

TEST(FindRead, TakesTheNearestSizeAndTheFasterPages) {
  const Machine machine = MakeMachine();
  EXPECT_EQ(FindRead(machine, 350'000'000, 2)->bytes_per_second, 50e9);
  EXPECT_EQ(FindRead(machine, 300'000'000, 1)->bytes_per_second, 42e9);
  EXPECT_EQ(FindRead(machine, int64_t{5} << 30, 2)->bytes_per_second, 45e9);
  // Both far beyond the cache, which holds next to nothing of either.
  EXPECT_EQ(FindRead(machine, int64_t{1} << 40, 2)->bytes_per_second, 45e9);
  EXPECT_EQ(FindRead(machine, int64_t{5} << 30, 1)->bytes_per_second, 42e9);
}

TEST(FindRead, HasNothingForOtherThreadsOrSmallerBuffers) {
  Machine machine = MakeMachine();
  EXPECT_EQ(FindRead(machine, 350'000'000, 3), nullptr);
  EXPECT_EQ(FindRead(machine, 100'000'000, 2), nullptr);
  machine.l3_bytes = 0;  // unknown: then only sizes that are alike
  EXPECT_EQ(FindRead(machine, int64_t{1} << 40, 2), nullptr);
}

TEST(TwoThreadsOverOne, IsTheLeastOfAllPeaks) {
  Machine machine = MakeMachine();
  EXPECT_DOUBLE_EQ(TwoThreadsOverOne(machine), 250.0 / 130);
  machine.peaks[3].macs_per_second = 550e9;  // siblings
  EXPECT_LT(TwoThreadsOverOne(machine), kSharedCoreRatio);
  machine.peaks.clear();
  EXPECT_EQ(TwoThreadsOverOne(machine), 0);
}

}  // namespace
}  // namespace lucid
