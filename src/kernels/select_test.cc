// Which tables are selected, and how a choice explains itself.
#include <gtest/gtest.h>

#include <string>

#include "base/cpu_features.h"
#include "kernels/table.h"

namespace lucid {
namespace {

std::vector<std::string> Names(std::string_view isa) {
  std::vector<std::string> names;
  const auto tables = SelectTables(isa).value();
  for (const KernelTable* table : tables) names.emplace_back(table->isa);
  return names;
}

TEST(SelectTables, ReferenceAndGenericRunEverywhere) {
  EXPECT_EQ(Names("reference"), std::vector<std::string>{"reference"});
  EXPECT_EQ(Names("generic"), (std::vector<std::string>{"generic", "reference"}));
}

TEST(SelectTables, AutoIsTheBestOfTheCpu) {
  EXPECT_EQ(Names("auto"), Names(""));
  const auto has = [](std::string_view needs) { return WhyUnavailable(needs).empty(); };
  EXPECT_EQ(Names("").front(), has(kNeedsAmx)          ? "amx"
                               : has(kNeedsAvx512Bf16) ? "avx512bf16"
                               : has(kNeedsAvx512Vnni) ? "avx512vnni"
                               : has(kNeedsAvx512)     ? "avx512"
                               : has(kNeedsAvx2)       ? "avx2"
                               : has(kNeedsNeonDot)    ? "neondot"
                               : has(kNeedsNeon)       ? "neon"
                                                       : "generic");
  EXPECT_EQ(Names("").back(), "reference");
}

TEST(SelectTables, ANamedSetIsTheCeiling) {
  const bool avx2 = WhyUnavailable(kNeedsAvx2).empty();
  if (!avx2 && !WhyUnavailable(kNeedsNeon).empty()) {
    GTEST_SKIP() << "this CPU has neither AVX2 nor NEON";
  }
  const std::string isa = avx2 ? "avx2" : "neon";
  EXPECT_EQ(Names(isa), (std::vector<std::string>{isa, "generic", "reference"}));
  RmsNormArgs args;
  const auto tables = SelectTables(isa).value();
  const KernelChoice choice = ChooseKernel(tables, KernelOp::kRmsNorm, &args);
  EXPECT_EQ(choice.isa, isa);
  EXPECT_EQ(choice.kernel->name, "rms_norm." + isa);
}

TEST(SelectTables, AnUnknownNameIsAnErrorThatListsTheChoices) {
  const auto tables = SelectTables("sse9");
  ASSERT_FALSE(tables);
  EXPECT_EQ(tables.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(tables.error().message.find("\"sse9\""), std::string::npos);
  EXPECT_NE(tables.error().message.find("generic, reference"), std::string::npos);
}

TEST(SelectTables, EveryTableSaysWhetherItRuns) {
  const auto statuses = TableStatuses("").value();
  std::vector<std::string> used;
  for (const TableStatus& status : statuses) {
    EXPECT_EQ(status.refused, WhyUnavailable(status.needs)) << status.isa;
    if (status.refused.empty()) used.emplace_back(status.isa);
  }
  EXPECT_EQ(used, Names(""));
}

TEST(SelectTables, TablesAboveTheCeilingSayThatTheyAreAboveIt) {
  const auto statuses = TableStatuses("generic").value();
  for (const TableStatus& status : statuses) {
    const bool below = status.isa == "generic" || status.isa == "reference";
    EXPECT_EQ(status.refused.empty(), below) << status.isa;
    if (!below && WhyUnavailable(status.needs).empty()) {
      EXPECT_EQ(status.refused, "above the ceiling \"generic\"");
    }
  }
  EXPECT_FALSE(TableStatuses("sse9"));
}

TEST(ChooseKernel, ARefusalSaysWhyAndFallsThrough) {
  LinearArgs args;
  args.w.rank = 3;
  const auto tables = SelectTables("generic").value();
  const KernelChoice choice = ChooseKernel(tables, KernelOp::kLinear, &args);
  EXPECT_EQ(choice.isa, "reference");
  EXPECT_EQ(
      choice.refused,
      "generic: packed_linear.generic wants packed weights; generic: dense_linear.generic wants "
      "packed weights; generic: linear.generic wants a weight of two dimensions");
}

TEST(ChooseKernel, TheReferenceTableHasEveryOp) {
  const KernelTable* tables[] = {&ReferenceKernels()};
  for (int op = 0; op <= static_cast<int>(KernelOp::kGatherRows); ++op) {
    const auto kernel_op = static_cast<KernelOp>(op);
    EXPECT_NE(Name(kernel_op), "unknown");
    EXPECT_NE(ChooseKernel(tables, kernel_op, nullptr).kernel, nullptr);
  }
}

}  // namespace
}  // namespace lucid
