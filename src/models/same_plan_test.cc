// When two plans pass for the same: float32 numbers by their first digits, whole numbers exactly.
#include "models/same_plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "models/arch_test_util.h"

namespace lucid {
namespace {

bool Same(const std::function<void(ModelConfig&)>& change) {
  const ArchSpec& arch = **FindArchByHf("MistralForCausalLM");
  ModelConfig config = arch.from_hf(SmallConfig(arch)).value();
  for (LayerConfig& layer : config.layers) layer.window = 131072;
  const Plan plan = BuildPlan(arch, config);
  change(config);
  return CheckSamePlan(plan, BuildPlan(arch, config)).has_value();
}

TEST(SamePlanTest, WholeNumbersAreEqualOrNot) {
  EXPECT_TRUE(Same([](ModelConfig&) {}));
  EXPECT_FALSE(Same([](ModelConfig& c) { c.layers[1].window = 131073; }));
}

TEST(SamePlanTest, OthersMayDifferInTheirLastDigits) {
  EXPECT_TRUE(Same([](ModelConfig& c) { c.attn_scale *= 1.000001; }));
  EXPECT_FALSE(Same([](ModelConfig& c) { c.attn_scale *= 1.001; }));
  EXPECT_TRUE(Same([](ModelConfig& c) { c.layers[0].rope.theta *= 1.0000001; }));
  EXPECT_FALSE(Same([](ModelConfig& c) { c.layers[0].rope.theta *= 1.01; }));
}

}  // namespace
}  // namespace lucid
