// A step takes no memory: neither packing a batch that has been used before, nor running it.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/allocation_test_util.h"
#include "exec/runner.h"

namespace lucid {
namespace {

constexpr int32_t kTokens = 64;  // of a prompt
constexpr int32_t kSequences = 3;

class StepAllocations : public testing::TestWithParam<Numerics> {
 protected:
  void SetUp() override {
    const std::string path =
        std::string(LUCID_SHARED_DIR) + "/fixtures/gguf/models/stories_llama.q4_0.gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    Result<Model> model = LoadModel(path);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::make_unique<Model>(*std::move(model));
    RunnerOptions options;
    options.n_threads = 2;
    options.max_tokens = kTokens * kSequences;
    options.max_outputs = kSequences;
    options.numerics = GetParam();
    Result<KvLayout> layout = KvLayout::Make(model_->plan.kv_layers, options.kv);
    ASSERT_TRUE(layout.has_value()) << layout.error().message;
    const int64_t blocks = 2 * kTokens / options.kv.block_size;
    for (const KvGroup& group : layout->groups()) {
      options.kv_blocks[static_cast<size_t>(group.pool)] += kSequences * blocks;
    }
    Result<std::unique_ptr<Runner>> runner = Runner::Create(*model_, options);
    ASSERT_TRUE(runner.has_value()) << runner.error().message;
    runner_ = *std::move(runner);
    for (int32_t s = 0; s < kSequences; ++s) {
      std::vector<int32_t>& table = tables_.emplace_back(static_cast<size_t>(blocks));
      std::iota(table.begin(), table.end(), s * static_cast<int32_t>(blocks));
      spans_.emplace_back(layout->groups().size(), table);
    }
    batch_ = std::make_unique<Batch>(static_cast<int32_t>(layout->groups().size()));
  }

  // One step: `count` tokens from position `first` on of each of the sequences.
  void Step(int32_t sequences, int32_t first, int32_t count) {
    batch_->Clear();
    for (int32_t s = 0; s < sequences; ++s) {
      batch_->AddSequence(spans_[static_cast<size_t>(s)], {});
      for (int32_t i = 0; i < count; ++i) {
        batch_->AddToken(5 + i % 50, first + i, first == 0 ? Phase::kPrompt : Phase::kGenerated,
                         i + 1 == count);
      }
    }
    runner_->Run(*batch_);
  }

  void PromptsThenTokens() {
    Step(kSequences, 0, kTokens);
    for (int32_t at = kTokens; at < kTokens + 8; ++at) {
      Step(1, at, 1);
      Step(kSequences, at, 1);
    }
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Batch> batch_;
  std::vector<std::vector<int32_t>> tables_;  // [sequence]
  std::vector<std::vector<std::span<const int32_t>>> spans_;
};
INSTANTIATE_TEST_SUITE_P(Numerics, StepAllocations,
                         testing::Values(Numerics::kDefault, Numerics::kFloat),
                         [](const auto& numerics) { return std::string(Name(numerics.param)); });

TEST_P(StepAllocations, AreNone) {
  PromptsThenTokens();
  const AllocationCount count;
  PromptsThenTokens();
  EXPECT_EQ(count.Taken(), 0);
  ::operator delete(::operator new(100));  // the counter itself works
  EXPECT_EQ(count.Taken(), 1);
}

}  // namespace
}  // namespace lucid
