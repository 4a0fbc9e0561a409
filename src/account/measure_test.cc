// That everything is measured that can be, and that a source of peaks measures only what it lacks.
// No speeds are asserted.
#include "account/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "account/kernel_speed.h"
#include "account/peak_source.h"

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Measure, FillsAMachine) {
  MeasureOptions options;
  options.model_bytes = 1 << 20;
  options.large_bytes = 4 << 20;
  options.threads = {1, 2};
  std::vector<std::string> parts;
  options.progress = [&parts](std::string_view part) { parts.emplace_back(part); };
  const Machine machine = MeasureMachine(options).value();
  EXPECT_TRUE(IsThisMachine(machine));
  EXPECT_EQ(parts.size(), 3u);
  ASSERT_EQ(machine.reads.size(), 8u);  // two sizes, two kinds of pages, two numbers of threads
  for (const ReadSpeed& read : machine.reads) {
    EXPECT_GT(read.bytes_per_second, 0);
    EXPECT_LE(read.bytes_per_second, read.fastest);
    EXPECT_FALSE(read.how.empty());
  }
  for (const ComputePeak& peak : machine.peaks) EXPECT_GT(peak.macs_per_second, 0);
  EXPECT_GT(TwoThreadsOverOne(machine), 0);
  ASSERT_EQ(machine.clocks.size(), 2u);
  EXPECT_GT(machine.clocks[0].value, 1e8);  // hertz
  ASSERT_EQ(machine.barriers.size(), 1u);
  EXPECT_GT(machine.barriers[0].value, 0);
  for (const Refusal& refusal : machine.refused) {
    EXPECT_FALSE(refusal.reason.empty());
    for (const ComputePeak& peak : machine.peaks) EXPECT_NE(peak.isa, refusal.isa);
  }
}

TEST(Measure, LeavesOutWhatThereIsNoTimeForAndSaysSo) {
  MeasureOptions options;
  options.model_bytes = 1 << 20;
  options.large_bytes = 4 << 20;
  options.threads = {1, 2};
  options.most_seconds = 0;
  const Machine machine = MeasureMachine(options).value();
  EXPECT_TRUE(machine.reads.empty());
  EXPECT_TRUE(machine.peaks.empty());
  EXPECT_EQ(machine.clocks.size(), 2u);  // which name the columns
  ASSERT_EQ(machine.notes.size(), 1u);
  EXPECT_THAT(machine.notes[0], HasSubstr("not measured for want of time: "));
  EXPECT_THAT(machine.notes[0], HasSubstr("float32 generic with 1 thread, "));
  EXPECT_THAT(machine.notes[0], HasSubstr("reading 1048576 bytes in huge pages with 2 threads, "));
}

TEST(BufferBytes, AreWholePagesOfHalfTheMemoryAtMost) {
  EXPECT_EQ(BufferBytes(10'000, 1, 1 << 20), 8192);
  EXPECT_EQ(BufferBytes(int64_t{1} << 40, 1, 1 << 20), 1 << 19);
  EXPECT_EQ(BufferBytes(int64_t{1} << 40, 1, 0), int64_t{1} << 40);  // the system does not say
  EXPECT_EQ(BufferBytes(100, 3, 1 << 20), 3 * 4096);                 // a page for every thread
}

TEST(MeasureRead, SaysWhatItRead) {
  const ReadSpeed read = MeasureRead(1 << 20, 2, false).value();
  EXPECT_EQ(read.bytes, 1 << 20);
  EXPECT_EQ(read.threads, 2);
  EXPECT_FALSE(read.huge_pages);
}

TEST(PeakSource, MeasuresWhatItLacksOnceAndSaysWhy) {
  std::vector<std::string> said;
  PeakSource peaks(Machine{}, "nothing is stored",
                   [&said](const std::string& message) { said.push_back(message); });
  const ReadSpeed read = peaks.Read(1 << 20, 1).value();
  EXPECT_GT(read.bytes_per_second, 0);
  EXPECT_THAT(said, ElementsAre(HasSubstr("nothing is stored"), HasSubstr("reads 1.0 MB")));
  EXPECT_EQ(peaks.Read(1 << 20, 1).value().bytes_per_second, read.bytes_per_second);
  const ArithmeticPeak peak = peaks.Arithmetic(1, Factors::kFloat32);
  EXPECT_GT(peak.macs_per_second, 0);
  EXPECT_EQ(peaks.Arithmetic(1, Factors::kFloat32).macs_per_second, peak.macs_per_second);
  EXPECT_GE(peaks.Arithmetic(1, Factors::kInt8).macs_per_second, peak.macs_per_second);
  EXPECT_EQ(said.size(), 3u);
}

TEST(PeakSource, TakesWhatIsStored) {
  Machine machine;
  machine.reads = {{1000, 7, true, 5e9, 4e9, "loop"}};
  machine.peaks = {{"float32", "x", 7, 3e9}};
  machine.other_load = 0.25;
  PeakSource peaks(machine, "", [](const std::string& message) { FAIL() << message; });
  EXPECT_EQ(peaks.disturbance(), 0.25);
  EXPECT_EQ(peaks.Read(1100, 7).value().bytes_per_second, 5e9);
  EXPECT_EQ(peaks.Arithmetic(7, Factors::kFloat32).unit, "float32 x");
}

KernelSpeed StoredKernels(double rate, std::string_view build) {
  return {.weights = "Q4_K",
          .numerics = "default",
          .threads = 3,
          .isa = std::string((*SelectTables(""))[0]->isa),
          .build = std::string(build),
          .stream_bytes_per_second = rate,
          .cached_bytes_per_second = rate,
          .macs_per_second = rate,
          .attention_macs_per_second = rate,
          .token_attention_macs_per_second = rate,
          .activation_bytes_per_second = rate,
          .op_seconds = 1e-6};
}

TEST(PeakSource, TakesKernelsOfThisBuildOnly) {
  Machine machine;
  machine.kernels = {StoredKernels(1e9, "another"), StoredKernels(2e9, KernelBuild())};
  machine.reads = {{1000, 3, true, 5e9, 4e9, "loop"}};
  machine.peaks = {{"int8", "x", 3, 3e9}};
  PeakSource peaks(machine, "", [](const std::string& message) { FAIL() << message; });
  EXPECT_EQ(peaks.Kernels(DType::kQ4_K, Numerics::kDefault, "", 3)->stream_bytes_per_second, 2e9);
  // Of a model: the types that most of its weights have; a tied embedding is the output matrix.
  const std::vector<LedgerWeight> weights = {
      {.name = "token_embd", .part = Part::kEmbedding, .dtype = DType::kQ4_K, .bytes = 500},
      {.name = "blk.0.ffn_up", .part = Part::kFfn, .dtype = DType::kQ4_K, .bytes = 500},
      {.name = "blk.0.attn_norm", .part = Part::kNorm, .dtype = DType::kF32, .bytes = 100},
      {.name = "blk.0.few", .part = Part::kFfn, .dtype = DType::kQ6_K, .bytes = 10}};
  const Hardware hardware = peaks.MachineFor(weights, 1000, Numerics::kDefault, "", 3).value();
  ASSERT_EQ(hardware.kernels.size(), 1u);
  EXPECT_EQ(hardware.kernels[0].weights, "Q4_K");
  EXPECT_EQ(hardware.bytes_per_second, 5e9);
  EXPECT_TRUE(peaks.ThisMachine(3, 1000, false)->kernels.empty());
  EXPECT_FALSE(peaks.Kernels(DType::kQ4_K, Numerics::kDefault, "abacus", 3).has_value());
}

}  // namespace
}  // namespace lucid
