// The cost model against steps whose cost is known.
#include "sched/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lucid {
namespace {

// A machine with known costs: 2 ms per step, 0.3 ms per decode row, and so on.
double TrueSeconds(const StepLoad& load) {
  return 2e-3 + 3e-4 * static_cast<double>(load.decode_tokens) +
         2e-8 * static_cast<double>(load.decode_keys) +
         4e-4 * static_cast<double>(load.prefill_tokens) +
         3e-8 * static_cast<double>(load.prefill_pairs);
}

StepLoad RandomLoad(std::mt19937_64& random) {
  const auto below = [&random](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n)(random);
  };
  StepLoad load;
  load.decode_tokens = below(64);
  load.decode_keys = load.decode_tokens * (1 + below(4000));
  if (below(1) == 1) {
    load.prefill_tokens = 1 + below(511);
    load.prefill_pairs = load.prefill_tokens * (1 + below(4000));
  }
  return load;
}

TEST(CostModelTest, KnowsNothingAtFirst) {
  const CostModel model;
  EXPECT_EQ(model.observations(), 0);
  EXPECT_EQ(model.Predict({64, 64000, 512, 100000}), 0);
}

TEST(CostModelTest, PredictsWithinAFewPercentAfterFiftySteps) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> noise(1.0, 0.03);
    CostModel model;
    for (int i = 0; i < 50; ++i) {
      const StepLoad load = RandomLoad(random);
      model.Observe(load, TrueSeconds(load) * noise(random));
    }
    double sum = 0;
    for (int i = 0; i < 200; ++i) {
      const StepLoad load = RandomLoad(random);
      const double error = model.Predict(load) / TrueSeconds(load) - 1;
      sum += std::abs(error);
      EXPECT_LT(std::abs(error), 0.10) << "seed " << seed;
    }
    EXPECT_LT(sum / 200, 0.03) << "seed " << seed;
  }
}

TEST(CostModelTest, IsNeverNegativeHoweverStrangeTheTimes) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> seconds(-4, 3);
  CostModel model;
  for (int i = 0; i < 2000; ++i) {
    model.Observe(RandomLoad(random), seconds(random));
    const StepLoad load = RandomLoad(random);
    const double predicted = model.Predict(load);
    ASSERT_TRUE(std::isfinite(predicted));
    ASSERT_GE(predicted, 0);
    StepLoad more = load;
    more.prefill_tokens += 100;
    ASSERT_GE(model.Predict(more), predicted) << "more work cannot take less time";
  }
}

TEST(CostModelTest, FollowsAMachineThatBecomesSlower) {
  std::mt19937_64 random(3);
  CostModel model;
  for (int i = 0; i < 200; ++i) {
    const StepLoad load = RandomLoad(random);
    model.Observe(load, TrueSeconds(load));
  }
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = RandomLoad(random);
    model.Observe(load, 2 * TrueSeconds(load));
  }
  const StepLoad load{32, 32000, 256, 100000};
  EXPECT_NEAR(model.Predict(load) / (2 * TrueSeconds(load)), 1, 0.05);
}

TEST(CostModelTest, RemembersPrefillThroughALongStretchOfDecoding) {
  std::mt19937_64 random(5);
  CostModel model;
  for (int i = 0; i < 50; ++i) {
    const StepLoad load = RandomLoad(random);
    model.Observe(load, TrueSeconds(load));
  }
  for (int i = 0; i < 20000; ++i) {
    const StepLoad load{8, 8 * (500 + i % 1000), 0, 0};
    model.Observe(load, TrueSeconds(load));
  }
  const StepLoad load{8, 8000, 256, 100000};
  EXPECT_NEAR(model.Predict(load) / TrueSeconds(load), 1, 0.1);
}

TEST(CostModelTest, StepsOfUnknownTimeTeachNothing) {
  CostModel model;
  model.Observe({1, 1, 0, 0}, 0);
  EXPECT_EQ(model.observations(), 0);
}

TEST(CostModelTest, TellsHowFarItHasSeen) {
  CostModel model;
  model.Observe({0, 0, 48, 1000}, 0.1);
  model.Observe({0, 0, 16, 1000}, 0.1);
  EXPECT_EQ(model.most_prefill_tokens(), 48);
}

}  // namespace
}  // namespace lucid
