// The promise that a token's numbers depend on its own sequence alone, for models that between them
// use every kernel; the types of the cache; and the two forms of latent attention.
#include <cmath>

#include "exec/reference_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the models and their fixture

// One model for every way of computing something.
class Bits : public Fixture {};

TEST_P(Bits, AreTheSameForAnyChunkingAndThreadCount) {
  const std::vector<int32_t>& ids = prompts_[0].ids;
  SetPrompt(ids.size());
  Run(ids, 0, /*all=*/false);
  const std::vector<float> whole(runner_->Logits(0).begin(), runner_->Logits(0).end());
  for (const int n_threads : {1, 2, 3}) {
    StartRunner(n_threads);
    for (const size_t chunk : {size_t{1}, size_t{5}, ids.size()}) {
      for (size_t i = 0; i < ids.size(); i += chunk) {
        Run(std::span(ids).subspan(i, std::min(chunk, ids.size() - i)), static_cast<int64_t>(i),
            false);
      }
      const std::span<const float> again = runner_->Logits(0);
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), again.begin()))
          << n_threads << " threads, chunks of " << chunk;
    }
  }
}

TEST_P(Bits, AreTheSameWhereBatchesHaveThreadsOfTheirOwn) {
  const std::vector<int32_t> ids = LongPrompt(40);
  const std::vector<float> expected = LastLogits(ids, 39);
  for (const auto& [one, several] : {std::pair<int, int>{1, 3}, {3, 1}}) {
    n_threads_batch_ = several;
    StartRunner(one);
    EXPECT_EQ(runner_->n_threads(), one);
    EXPECT_EQ(runner_->n_threads(2), several);
    EXPECT_EQ(runner_->pool().size(), 3);
    EXPECT_EQ(LastLogits(ids, 39), expected) << one << " and " << several << " threads";
  }
}

TEST_P(Bits, AreTheSameAloneAndBesideOtherSequences) {
  const std::vector<int32_t>& ids = prompts_[0].ids;
  SetPrompt(ids.size());
  Run(ids, 0, /*all=*/false);
  const std::vector<float> alone(runner_->Logits(0).begin(), runner_->Logits(0).end());
  Batch batch = NewBatch();
  AddSequence(batch, 1);
  for (size_t i = 0; i < ids.size() / 2; ++i)
    AddToken(batch, ids[ids.size() - 1 - i], static_cast<int64_t>(i), i == 0);
  AddSequence(batch, 0);
  for (size_t i = 0; i < ids.size(); ++i)
    AddToken(batch, ids[i], static_cast<int64_t>(i), i + 1 == ids.size());
  runner_->Run(batch);
  const std::span<const float> beside = runner_->Logits(1);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), beside.begin()));
}

TEST_P(Bits, AreTheSameForAnyBlockSize) {
  const std::vector<int32_t> ids = LongPrompt(70);
  for (const KvType type : {KvType::kF32, KvType::kInt8}) {
    StartRunner(2, true, type, 16);
    const std::vector<float> want = LastLogits(ids, 32);
    for (const int64_t block_size : {8, 64}) {
      StartRunner(2, true, type, block_size);
      EXPECT_EQ(LastLogits(ids, 32), want) << Name(type) << " in blocks of " << block_size;
    }
  }
}

class CacheTypes : public Fixture {};

TEST_P(CacheTypes, GiveTheSameBitsForAnyChunkingAndThreadCount) {
  const std::vector<int32_t> ids = LongPrompt(180);  // kivi2 packs from 128 positions on
  for (const KvType type : AllKvTypes()) {
    StartRunner(2, true, type);
    const std::vector<float> whole = LastLogits(ids, ids.size());
    for (const auto& [n_threads, chunk] : {std::pair<int, size_t>{1, 1}, {3, 50}}) {
      StartRunner(n_threads, true, type);
      EXPECT_EQ(LastLogits(ids, chunk), whole)
          << Name(type) << ", " << n_threads << " threads, chunks of " << chunk;
    }
  }
}

// The weights are random, so attention is sharp and errors of keys weigh more than in a trained
// model.
TEST_P(CacheTypes, AreAsNearAsTheirBitsAllow) {
  numerics_ = Numerics::kFloat;  // else prompts may meet a cache of 16 bits in bfloat16
  const std::vector<int32_t> ids = LongPrompt(100);
  StartRunner(2, true, KvType::kF32);
  const std::vector<float> exact = LastLogits(ids, ids.size());
  StartRunner(2, true, KvType::kF16);
  const std::vector<float> half = LastLogits(ids, ids.size());
  const auto distance = [&](KvType type) {
    StartRunner(2, true, type);
    const std::vector<float> logits = LastLogits(ids, ids.size());
    double sum = 0, norm = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      sum += std::pow(logits[i] - exact[i], 2.0);
      norm += std::pow(exact[i], 2.0);
    }
    return std::sqrt(sum / norm);
  };
  EXPECT_LT(distance(KvType::kF16), 1e-3);
  EXPECT_LT(distance(KvType::kBF16), 1e-2);
  EXPECT_LT(distance(KvType::kInt8), 2.5e-2);
  EXPECT_LT(distance(KvType::kFp8), 0.15);
  EXPECT_LT(distance(KvType::kInt4), 0.35);
  StartRunner(2, true, KvType::kKivi2);
  EXPECT_EQ(LastLogits(ids, ids.size()), half) << "nothing is older than the residual window";
}

// Models with latent attention.
class Latent : public Fixture {
 protected:
  // Logits of every token; those from `first_generated` on are generated, one a step.
  std::vector<float> Logits(std::span<const int32_t> ids, size_t first_generated) {
    std::vector<float> logits;
    const auto keep = [&] {
      for (int64_t i = 0; i < n_outputs_; ++i) {
        logits.insert(logits.end(), runner_->Logits(i).begin(), runner_->Logits(i).end());
      }
    };
    if (first_generated > 0) {
      Run(ids.first(first_generated), 0, /*all=*/true);
      n_outputs_ = static_cast<int64_t>(first_generated);
      keep();
    }
    n_outputs_ = 1;
    for (size_t i = first_generated; i < ids.size(); ++i) {
      Batch batch = NewBatch();
      AddSequence(batch, 0);
      batch.AddToken(ids[i], static_cast<int64_t>(i), Phase::kGenerated, true);
      runner_->Run(batch);
      keep();
    }
    return logits;
  }
  int64_t n_outputs_ = 0;
};

TEST_P(Latent, ExpandedAndAbsorbedFormsAgree) {
  StartExact();
  const std::vector<int32_t> ids = prompts_[1].ids;
  const std::vector<float> expanded = Logits(ids, ids.size());
  for (const size_t first : {size_t{0}, ids.size() / 2}) {
    ExpectClose(Logits(ids, first), expanded, 2e-4f, "from " + std::to_string(first));
  }
}

// A step with given and generated tokens of several sequences, and the same tokens in steps of
// their own.
TEST_P(Latent, TheSameBitsInAStepOfBothForms) {
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    StartRunner(2, true, type);
    const std::vector<int32_t> ids = LongPrompt(60);
    const std::vector<float> want = Logits(ids, 40);
    StartRunner(3, true, type);
    Run(std::span(ids).first(17), 0, false);
    Batch batch = NewBatch();
    AddSequence(batch, 1);
    for (size_t i = 0; i < 9; ++i) {
      batch.AddToken(ids[i + 3], static_cast<int64_t>(i), Phase::kPrompt, false);
    }
    AddSequence(batch, 0);
    for (size_t i = 17; i < ids.size(); ++i) {
      batch.AddToken(ids[i], static_cast<int64_t>(i), i < 40 ? Phase::kPrompt : Phase::kGenerated,
                     true);
    }
    runner_->Run(batch);
    const size_t vocab = want.size() / ids.size();
    for (size_t i = 17; i < ids.size(); ++i) {
      const std::span<const float> got = runner_->Logits(static_cast<int64_t>(i) - 17);
      EXPECT_TRUE(
          std::equal(got.begin(), got.end(), want.begin() + static_cast<std::ptrdiff_t>(i * vocab)))
          << Name(type) << " token " << i;
    }
  }
}

TEST_P(Latent, TheCacheKeepsLatentVectorsOnly) {
  const MlaConfig& mla = model_->config.mla;
  StartRunner(2, true, KvType::kBF16);
  EXPECT_EQ(runner_->kv().layout().BytesPerToken(),
            model_->config.n_layers * 2 * (mla.kv_lora + mla.rope));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Latent, testing::ValuesIn(Cases({"models/deepseek_v2_lite", "models/deepseek_v3"})),
    [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bits);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CacheTypes);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Latent);
INSTANTIATE_TEST_SUITE_P(
    Models, Bits,
    testing::ValuesIn(
        Cases({"models/gpt2", "models/bloom", "models/falcon_gqa", "models/llama3_gqa",
               "models/llama_rope_dynamic", "models/llama_rope_yarn", "models/mistral_swa",
               "models/qwen2", "models/gemma2", "models/gemma3_text_scaled", "models/phi3_longrope",
               "models/olmo", "models/olmo2", "models/cohere", "models/opt", "models/mixtral",
               "gguf/models/llama3_gqa.gguf", "trained/stories_llama"})),
    [](const testing::TestParamInfo<Case>& test) { return test.param.name; });
// Longer runs, with models whose layers are alike and one with windows.
INSTANTIATE_TEST_SUITE_P(Models, CacheTypes,
                         testing::ValuesIn(Cases({"models/qwen2", "models/gemma3_text",
                                                  "models/llama3_gqa", "models/bloom"})),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace lucid
