// What only some references hold, on every instruction set: the likelihood of held-out text (the
// trained models), quantised twins with references of their own, and a continuation without a cache
// where that is another one. runner_test.cc has what all hold.
#include "exec/reference_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the models and their fixture

// Up to the first step where the two best tokens are as close as this, which rounding may change.
constexpr double kSureGap = 0.03;

class Reference : public Fixture {
 protected:
  // Sum of -log p over all tokens but the first, from an empty cache.
  double Score(std::span<const int32_t> ids) {
    SetPrompt(ids.size());
    double nll = 0;
    for (size_t begin = 0; begin < ids.size(); begin += kOutputs) {
      const size_t n = std::min(kOutputs, ids.size() - begin);
      Run(ids.subspan(begin, n), static_cast<int64_t>(begin), /*all=*/true);
      for (size_t i = begin; i < begin + n && i + 1 < ids.size(); ++i) {
        const std::span<const float> logits = runner_->Logits(static_cast<int64_t>(i - begin));
        nll += NegativeLogLikelihood(logits, ids[i + 1]);
      }
    }
    return nll;
  }

  int32_t BestOf(std::span<const float> logits) const {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

 private:
  static constexpr size_t kOutputs = 128;  // of a batch
};

// Windows of 256 tokens, each beginning with the last token of the one before.
double ScoreWindows(const std::vector<int32_t>& ids,
                    const std::function<double(std::span<const int32_t>)>& score) {
  constexpr size_t kWindow = 256;
  double nll = 0;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += kWindow - 1) {
    nll += score(std::span(ids).subspan(begin, std::min(kWindow, ids.size() - begin)));
  }
  return nll / static_cast<double>(ids.size() - 1);
}

class Trained : public Reference {};

TEST_P(Trained, HeldOutTextIsAsLikely) {
  StartExact();
  const Json& facts = facts_["held_out"];
  const auto ids = facts["ids"].get<std::vector<int32_t>>();
  const std::span<const float> first = Expected("held_out.nll_first_window");
  EXPECT_NEAR(Score(std::span(ids).first(first.size() + 1)) / static_cast<double>(first.size()),
              std::accumulate(first.begin(), first.end(), 0.0) / static_cast<double>(first.size()),
              kNllTolerance);
  EXPECT_NEAR(ScoreWindows(ids, [&](std::span<const int32_t> part) { return Score(part); }),
              facts["windows_of_256"]["mean_nll"].get<double>(), kNllTolerance);
}

class Quantised : public Reference {};

TEST_P(Quantised, LogitsGreedyTokensAndLikelihoodsMatch) {
  StartExact();
  const std::string stem = "gguf/models/stories_llama.reference";
  const auto own = SafetensorsCheckpoint::Open(kFixtures + "/" + stem + ".safetensors");
  ASSERT_TRUE(own.has_value()) << own.error().message;
  const std::string file = fs::path(GetParam().model).filename();
  const std::string type = fs::path(file).stem().extension().string().substr(1);  // "q8_0"
  const Json all = Json::parse(std::ifstream(kFixtures + "/" + stem + ".json"));
  const Json& facts = all["files"][file];
  ASSERT_EQ(facts["prompts"].size(), prompts_.size());
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const std::vector<int32_t>& ids = prompts_[p].ids;
    const Json& want = facts["prompts"][p];
    const std::string tag = "prompt" + std::to_string(p);
    EXPECT_NEAR(Score(ids) / static_cast<double>(ids.size() - 1), want["mean_nll"].get<double>(),
                kNllTolerance)
        << tag;
    std::vector<float> logits = LastLogits(ids, ids.size());
    const TensorEntry* last = (*own)->Find(type + "." + tag + ".last_logits");
    ASSERT_NE(last, nullptr) << tag;
    ExpectClose(logits, {last->tensor.f32(), static_cast<size_t>(last->tensor.elements())},
                kLogitTolerance, tag);
    for (size_t i = 0; i < want["greedy_ids"].size(); ++i) {
      if (want["top1_top2_gaps"][i].get<double>() < kSureGap) break;
      const int32_t best = BestOf(logits);
      ASSERT_EQ(best, want["greedy_ids"][i].get<int32_t>()) << tag << " token " << i;
      Run(std::span(&best, 1), static_cast<int64_t>(ids.size() + i), false);
      logits.assign(runner_->Logits(0).begin(), runner_->Logits(0).end());
    }
  }
  const auto held_out = facts_["held_out"]["ids"].get<std::vector<int32_t>>();
  EXPECT_NEAR(ScoreWindows(held_out, [&](std::span<const int32_t> part) { return Score(part); }),
              facts["held_out_windows_of_256"]["mean_nll"].get<double>(), kNllTolerance);
}

// Without a cache every token is rotated for the length that the sequence has each time.
class NoCache : public Reference {};

TEST_P(NoCache, GreedyContinuationMatches) {
  StartExact();
  size_t compared = 0;
  for (const auto& [tag, facts] : facts_["prompts"].items()) {
    if (!facts.contains("greedy_nocache")) continue;
    const Json& want = facts["greedy_nocache"];
    auto ids = facts["ids"].get<std::vector<int32_t>>();
    for (size_t i = 0; i < want["ids"].size(); ++i, ++compared) {
      const std::vector<float> logits = LastLogits(ids, ids.size());
      ASSERT_EQ(BestOf(logits), want["ids"][i].get<int32_t>()) << tag << " token " << i;
      for (size_t k = 0; k < want["top5_ids"][i].size(); ++k) {
        EXPECT_NEAR(-NegativeLogLikelihood(logits, want["top5_ids"][i][k].get<int32_t>()),
                    want["top5_logprobs"][i][k].get<double>(), kLogitTolerance)
            << tag << " token " << i << " choice " << k;
      }
      ids.push_back(BestOf(logits));
    }
  }
  EXPECT_GE(compared, 16u);
}

// The twins have no folder of their name.
std::vector<Case> QuantisedCases() {
  std::vector<Case> cases;
  for (Case c : Cases({"trained/stories_llama"})) {
    for (const std::string type : {"q8_0", "q4_0"}) {
      c.model = "gguf/models/stories_llama." + type + ".gguf";
      c.name = type + "_" + c.isa;
      cases.push_back(c);
    }
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<Case>& test) {
  return test.param.name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Trained);
INSTANTIATE_TEST_SUITE_P(Models, Trained,
                         testing::ValuesIn(Cases({"trained/stories_llama", "trained/stories_draft",
                                                  "trained/stories_gpt2"})),
                         NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Quantised);
INSTANTIATE_TEST_SUITE_P(Models, Quantised, testing::ValuesIn(QuantisedCases()), NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NoCache);
INSTANTIATE_TEST_SUITE_P(Models, NoCache, testing::ValuesIn(Cases({"models/llama_rope_dynamic"})),
                         NameOf);

}  // namespace
}  // namespace lucid
