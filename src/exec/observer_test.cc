// What an executed step cost: experts as they were touched.
#include "exec/observer.h"

#include <set>

#include "exec/reference_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the models and their fixture

class ExpertCounter final : public Observer {
 public:
  explicit ExpertCounter(const Weights& weights) : weights_(weights) {}
  void AfterOp(const ObservedOp& observed) override {
    const Op& op = observed.op;
    if (op.kind == OpKind::kRoute) {
      const std::span<const float> chosen = observed.Read(op.outputs[0]);
      chosen_ = std::ssize(std::set<float>(chosen.begin(), chosen.end()));
      return;
    }
    const std::optional<int64_t> touched = TouchedExperts(observed);
    ASSERT_EQ(touched.has_value(),
              op.kind == OpKind::kExpertGlu || op.kind == OpKind::kExpertLinear);
    if (!touched) return;
    EXPECT_EQ(*touched, chosen_);
    Workload work;
    work.sequences = {{0, observed.step.n_tokens}};
    work.weight_dtypes = weights_.dtypes();
    int64_t bytes = 0;  // of the matrices and biases of one expert
    for (size_t i = 2; i < op.inputs.size(); ++i) {
      if (!op.inputs[i].present()) continue;
      bytes += weights_[op.inputs[i]].bytes() / observed.plan.Info(op.inputs[i]).shape[0].size;
    }
    EXPECT_EQ(ExecutedCost(observed, work).weight_bytes, chosen_ * bytes);
    ++counted;
  }
  int counted = 0;

 private:
  const Weights& weights_;
  int64_t chosen_ = 0;
};

using ObserverTest = Fixture;

TEST_P(ObserverTest, ExpertsAreCountedAsTheyWereTouched) {
  if (model_->config.moe.n_experts == 0) return;
  ExpertCounter counter(model_->weights);
  const std::vector<int32_t> ids = {5, 9, 31, 7, 80};
  SetPrompt(ids.size(), 0);
  Run(ids, 0, /*all=*/false, &counter);
  EXPECT_GE(counter.counted, 2);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ObserverTest);
INSTANTIATE_TEST_SUITE_P(Models, ObserverTest,
                         testing::ValuesIn(Cases({"models/qwen3_moe", "models/gpt_oss_mxfp4"})),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lucid
