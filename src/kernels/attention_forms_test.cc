// Sinks, and values that lie in the keys, against the reference on every instruction set.
#include <gtest/gtest.h>

#include "kernels/attention_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

TEST(Attention, SinksTakeTheirShareOfEveryHead) {
  for (const CacheShape& shape :
       {CacheShape{9, 3, 64, 64, 16, KvType::kF16}, CacheShape{32, 1, 33, 17, 128, KvType::kF32}}) {
    Cache cache(shape, 1, 700);
    Fill("reference", cache, 0, 700);
    Batch batch;
    batch.Add(0, 0, 3);
    batch.Add(0, 600, 604);
    const auto q = QueriesOf(batch, shape, 2.0f);
    // From none to nearly all of the weight.
    std::vector<float> sinks;
    for (int32_t h = 0; h < shape.n_heads; ++h)
      sinks.push_back(static_cast<float>(h) * 4.0f - 12.0f);
    for (int32_t window : {0, 7}) {
      AttentionArgs args = ArgsOf(shape, window);
      const auto without = Attend("reference", cache, args, batch, q, 2);
      args.sinks = sinks.data();
      const auto want = Attend("reference", cache, args, batch, q, 2);
      EXPECT_NE(want, without);
      for (const std::string& isa : CpuIsas()) {
        ExpectNear(Attend(isa, cache, args, batch, q, 2), want, 1e-5, 4e-6,
                   fmt::format("{} window {} {}", isa, window, Describe(shape)));
        EXPECT_EQ(Attend(isa, cache, args, batch, q, 3), AttendAlone(isa, cache, args, batch, q));
      }
    }
  }
}

TEST(Attention, ValuesMayBeTheFirstNumbersOfKeys) {
  for (const KvType type : AllKvTypes()) {
    if (!IsRowType(type)) continue;
    for (CacheShape shape :
         {CacheShape{16, 1, 48, 32, 8, type}, CacheShape{5, 1, 75, 40, 16, type}}) {
      shape.v_in_k = true;
      Cache cache(shape, 1, 150);
      Fill("reference", cache, 0, 150);
      Batch batch;
      batch.phase = Phase::kPrompt;
      batch.Add(0, 90, 95);
      batch.phase = Phase::kGenerated;
      batch.Add(0, 95, 99);
      const auto q = QueriesOf(batch, shape, 2.0f);
      AttentionArgs args = ArgsOf(shape);
      args.generated_only = true;
      const auto want = Attend("reference", cache, args, batch, q, 2);
      const size_t given = 5 * static_cast<size_t>(shape.n_heads * shape.v_dim);
      const auto after = [given](const std::vector<float>& y) {
        return std::vector<float>(y.begin() + static_cast<std::ptrdiff_t>(given), y.end());
      };
      EXPECT_TRUE(std::isnan(want[given - 1]) && !std::isnan(want[given]));
      for (const std::string& isa : CpuIsas()) {
        const auto got = Attend(isa, cache, args, batch, q, 2);
        EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[given - 1])) << "a given token's row";
        ExpectNear(after(got), after(want), 1e-5, 4e-6, fmt::format("{} {}", isa, Describe(shape)));
      }
    }
  }
}

}  // namespace
}  // namespace lucid
