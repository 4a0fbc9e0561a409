#include "decode/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace lucid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<float> kLogits = {2.0f, 1.0f, 0.5f, 0.0f, -0.5f, -1.0f, -3.0f, 0.75f};

// Every stage off: the model's own distribution.
SamplerParams Neutral() {
  SamplerParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

SamplerChain MakeChain(const SamplerParams& params) {
  auto chain = SamplerChain::Create(params);
  EXPECT_TRUE(chain.has_value()) << chain.error().message;
  return *std::move(chain);
}

std::vector<int32_t> Kept(const SamplerParams& params, const std::vector<float>& logits) {
  auto distribution = MakeChain(params).Distribution(logits, {}, {});
  EXPECT_TRUE(distribution.has_value());
  std::vector<int32_t> ids;
  for (const TokenProb& token : *distribution) ids.push_back(token.id);
  return ids;
}

std::string CreateError(const SamplerParams& params) {
  auto chain = SamplerChain::Create(params);
  return chain ? "" : chain.error().message;
}

// Deterministic noise, roughly normal, for large vocabularies.
std::vector<float> NoisyLogits(size_t n, float scale) {
  std::vector<float> logits(n);
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (uint32_t lane = 0; lane < 6; ++lane) sum += UniformDraw(9, 1, i, lane);
    logits[i] = static_cast<float>((sum - 3) * 1.414) * scale;
  }
  return logits;
}

TEST(SamplerChainTest, NamesBadParameters) {
  SamplerParams params;
  params.temperature = -1;
  EXPECT_THAT(CreateError(params), HasSubstr("temperature is -1"));
  params = {};
  params.temperature = std::nanf("");
  EXPECT_THAT(CreateError(params), HasSubstr("temperature"));
  params = {};
  params.top_p = 1.5f;
  EXPECT_THAT(CreateError(params), HasSubstr("top_p is 1.5"));
  params = {};
  params.min_p = -0.1f;
  EXPECT_THAT(CreateError(params), HasSubstr("min_p"));
  params = {};
  params.typical_p = 2;
  EXPECT_THAT(CreateError(params), HasSubstr("typical_p"));
  params = {};
  params.repetition_penalty = 0;
  EXPECT_THAT(CreateError(params), HasSubstr("repetition_penalty"));
  params = {};
  params.frequency_penalty = kInf;
  EXPECT_THAT(CreateError(params), HasSubstr("frequency_penalty"));
  params = {};
  params.repeat_last_n = -2;
  EXPECT_THAT(CreateError(params), HasSubstr("repeat_last_n"));
  params = {};
  params.min_keep = 0;
  EXPECT_THAT(CreateError(params), HasSubstr("min_keep"));
  params = {};
  params.logit_bias[5] = kInf;
  EXPECT_THAT(CreateError(params), HasSubstr("token 5"));
  params = {};
  params.samplers = {"top_k", "topp"};
  EXPECT_THAT(CreateError(params), HasSubstr("no sampler 'topp'"));
  params.samplers = {"top_k", "min_p", "top_k"};
  EXPECT_THAT(CreateError(params), HasSubstr("'top_k' is named twice"));
}

TEST(SamplerChainTest, OrderIsVisibleAndChangesTheResult) {
  SamplerParams params = Neutral();
  params.temperature = 3;
  params.top_p = 0.5f;
  params.samplers = {"top_p", "temperature"};
  EXPECT_EQ(MakeChain(params).Describe(), "top_p=0.5 -> temperature=3");
  EXPECT_THAT(Kept(params, kLogits), ElementsAre(0, 1));
  params.samplers = {"temperature", "top_p"};
  EXPECT_EQ(MakeChain(params).Describe(), "temperature=3 -> top_p=0.5");
  EXPECT_THAT(Kept(params, kLogits), ElementsAre(0, 1, 7));
  EXPECT_EQ(MakeChain(SamplerParams{}).Describe(),
            "top_k=40 -> top_p=0.95 -> min_p=0.05 -> temperature=0.8");
}

TEST(SamplerChainTest, GreedyTakesTheLowestOfEqualIdsWhateverTheFilters) {
  SamplerParams params;
  params.temperature = 0;
  params.top_p = 0;
  params.typical_p = 0.2f;
  const SamplerChain chain = MakeChain(params);
  EXPECT_EQ(chain.Describe(), "greedy");
  EXPECT_EQ(*chain.Sample(std::vector<float>{1, 3, 3, 0}, {}, {}, 0, 0), 1);
  SampleReport report;
  EXPECT_EQ(*chain.Sample(std::vector<float>{1, 3, 3, 0}, {}, {}, 0, 0, &report), 1);
  EXPECT_TRUE(std::isnan(report.draw));
  EXPECT_EQ(*chain.Sample(std::vector<float>{-kInf, std::nanf(""), -5}, {}, {}, 0, 0), 2);
}

TEST(SamplerChainTest, PenaltiesAndBiasActBeforeAGreedyPick) {
  SamplerParams params;
  params.temperature = 0;
  params.logit_bias[0] = -kInf;
  params.presence_penalty = 0.5f;
  const SamplerChain chain = MakeChain(params);
  EXPECT_EQ(chain.Describe(), "penalties(presence=0.5) -> logit_bias(1 tokens) -> greedy");
  const std::vector<int32_t> reply = {1};
  EXPECT_EQ(*chain.Sample(kLogits, {}, reply, 0, 0), 7);
  EXPECT_EQ(*chain.Sample(kLogits, reply, {}, 0, 0), 1);
}

TEST(SamplerChainTest, ErrorsWhereNoTokenCanBeChosen) {
  const SamplerChain chain = MakeChain(SamplerParams{});
  EXPECT_FALSE(chain.Sample(std::vector<float>{-kInf, std::nanf("")}, {}, {}, 0, 0));
  EXPECT_FALSE(chain.Sample({}, {}, {}, 0, 0));
  SamplerParams params;
  params.temperature = 0;
  EXPECT_FALSE(MakeChain(params).Sample(std::vector<float>{-kInf, -kInf}, {}, {}, 0, 0));
  params.logit_bias = {{0, -kInf}, {1, -kInf}};
  auto all_forbidden = MakeChain(params).Sample(std::vector<float>{1, 2}, {}, {}, 0, 0);
  ASSERT_FALSE(all_forbidden);
  EXPECT_THAT(all_forbidden.error().message, HasSubstr("logit_bias forbids every token"));
  params.logit_bias = {{9, 1.0f}};
  auto unknown = MakeChain(params).Sample(std::vector<float>{1, 2}, {}, {}, 0, 0);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("token 9, but the vocabulary has 2 tokens"));
}

TEST(SamplerChainTest, MinKeepBoundsEveryFilter) {
  SamplerParams params = Neutral();
  params.min_keep = 3;
  params.top_k = 1;
  EXPECT_THAT(Kept(params, kLogits), ElementsAre(0, 1, 7));
  params.top_k = 0;
  params.top_p = 0;
  EXPECT_THAT(Kept(params, kLogits), ElementsAre(0, 1, 7));
  params.top_p = 1;
  params.min_p = 1;
  EXPECT_THAT(Kept(params, kLogits), ElementsAre(0, 1, 7));
  params.min_p = 0;
  params.typical_p = 0;
  EXPECT_EQ(Kept(params, kLogits).size(), 3u);
  params.min_keep = 100;
  EXPECT_EQ(Kept(params, kLogits).size(), 8u);
}

TEST(SamplerChainTest, TiesAreKeptByTopKAndBrokenByIdInTopP) {
  const std::vector<float> flat(10, 1.0f);
  SamplerParams params = Neutral();
  params.top_k = 2;
  EXPECT_EQ(Kept(params, flat).size(), 10u);
  params.top_k = 0;
  params.top_p = 0.35f;
  EXPECT_THAT(Kept(params, flat), ElementsAre(0, 1, 2, 3));
}

TEST(SamplerChainTest, RepeatLastNLimitsTheHistory) {
  SamplerParams params = Neutral();
  params.temperature = 0;
  params.repetition_penalty = 10;
  params.repeat_last_n = 1;
  const std::vector<int32_t> reply = {0, 3};
  EXPECT_EQ(*MakeChain(params).Sample(kLogits, {}, reply, 0, 0), 0);
  params.repeat_last_n = 2;
  EXPECT_EQ(*MakeChain(params).Sample(kLogits, {}, reply, 0, 0), 1);
  params.repeat_last_n = 0;
  EXPECT_EQ(*MakeChain(params).Sample(kLogits, {}, reply, 0, 0), 0);
}

TEST(SamplerChainTest, DrawsDependOnSeedRequestAndPositionOnly) {
  SamplerParams params;
  params.seed = 7;
  const SamplerChain chain = MakeChain(params);
  const auto draw = [&](const SamplerChain& c, uint64_t request) {
    std::vector<int32_t> ids;
    for (uint64_t position = 0; position < 64; ++position) {
      ids.push_back(*c.Sample(kLogits, {}, {}, request, position));
    }
    return ids;
  };
  const auto first = draw(chain, 1);
  EXPECT_EQ(first, draw(MakeChain(params), 1));
  EXPECT_NE(first, draw(chain, 2));
  params.seed = 8;
  EXPECT_NE(first, draw(MakeChain(params), 1));
}

TEST(SamplerChainTest, FrequenciesFollowTheDistribution) {
  SamplerParams params = Neutral();
  params.top_k = 3;
  params.temperature = 2;
  const SamplerChain chain = MakeChain(params);
  const auto distribution = *chain.Distribution(kLogits, {}, {});
  std::map<int32_t, int> counts;
  constexpr int kDraws = 40000;
  for (uint64_t i = 0; i < kDraws; ++i) ++counts[*chain.Sample(kLogits, {}, {}, 3, i)];
  ASSERT_EQ(counts.size(), 3u);
  for (const TokenProb& token : distribution) {
    EXPECT_NEAR(counts[token.id] / double{kDraws}, std::exp(token.logprob), 0.015) << token.id;
  }
}

TEST(SamplerChainTest, ReportAccountsForAllMass) {
  SamplerParams params = Neutral();
  params.top_k = 5;
  params.top_p = 0.8f;
  params.temperature = 0.5f;
  const SamplerChain chain = MakeChain(params);
  SampleReport report;
  const int32_t id = *chain.Sample(kLogits, {}, {}, 1, 2, &report, 4);
  ASSERT_EQ(report.stages.size(), 3u);
  EXPECT_EQ(report.stages[0].setting, "top_k=5");
  EXPECT_EQ(report.stages[0].kept_before, 8);
  EXPECT_EQ(report.stages[0].kept_after, 5);
  EXPECT_NEAR(report.stages[0].mass_removed, 0.0381532 + 0.0231411 + 0.0031318, 1e-6);
  EXPECT_EQ(report.stages[2].mass_removed, 0);
  EXPECT_LT(report.stages[2].entropy_after, report.stages[2].entropy_before);
  ASSERT_EQ(report.top_before.size(), 4u);
  EXPECT_EQ(report.top_before[2].id, 7);
  EXPECT_NEAR(report.top_before[0].logprob, -0.76614654, 1e-6);
  EXPECT_EQ(report.draw, UniformDraw(params.seed, 1, 2));
  for (const TokenProb& token : report.top_after) {
    if (token.id == id) {
      EXPECT_NEAR(std::exp(token.logprob), report.final_prob, 1e-6);
    }
  }
  // The report changes nothing, and the stored draw gives the same token again.
  EXPECT_EQ(id, *chain.Sample(kLogits, {}, {}, 1, 2));
  double cumulative = 0;
  const auto distribution = *chain.Distribution(kLogits, {}, {});
  for (const TokenProb& token : distribution) {
    cumulative += std::exp(double{token.logprob});
    if (cumulative > report.draw) {
      EXPECT_EQ(token.id, id);
      break;
    }
  }
}

// The filters against their definitions by a full sort, at a size where the fast selections engage.
TEST(SamplerChainTest, FiltersEqualTheirDefinitionsOnALargeVocabulary) {
  const std::vector<float> logits = NoisyLogits(5000, 3.0f);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const double max = logits[static_cast<size_t>(order[0])];
  std::vector<double> weight;
  for (const int32_t id : order) weight.push_back(std::exp(logits[static_cast<size_t>(id)] - max));
  const double sum = std::accumulate(weight.begin(), weight.end(), 0.0);

  for (const int32_t k : {1, 7, 300, 1111, 4999, 5000, 9000}) {
    SamplerParams params = Neutral();
    params.top_k = k;
    std::vector<int32_t> expected(order.begin(), order.begin() + std::min(k, 5000));
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(Kept(params, logits), expected) << "top_k=" << k;
  }
  for (const float p : {0.01f, 0.3f, 0.9f, 0.99f, 0.9999f}) {
    SamplerParams params = Neutral();
    params.top_p = p;
    std::vector<int32_t> expected;
    double mass = 0;
    for (size_t i = 0; i < order.size() && mass < double{p} * sum; ++i) {
      mass += weight[i];
      expected.push_back(order[i]);
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(Kept(params, logits), expected) << "top_p=" << p;
  }
  double entropy = 0;
  for (const double w : weight) entropy -= w / sum * std::log(w / sum);
  for (const float p : {0.05f, 0.5f, 0.95f}) {
    SamplerParams params = Neutral();
    params.typical_p = p;
    std::vector<size_t> near(order.size());
    std::iota(near.begin(), near.end(), size_t{0});
    std::sort(near.begin(), near.end(), [&](size_t a, size_t b) {
      return std::abs(-std::log(weight[a] / sum) - entropy) <
             std::abs(-std::log(weight[b] / sum) - entropy);
    });
    std::vector<int32_t> expected;
    double mass = 0;
    for (size_t i = 0; i < near.size() && mass < double{p} * sum; ++i) {
      mass += weight[near[i]];
      expected.push_back(order[near[i]]);
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(Kept(params, logits), expected) << "typical_p=" << p;
  }
}

TEST(SamplerChainTest, LargeVocabularyIsFast) {
  const std::vector<float> logits = NoisyLogits(150000, 3.0f);
  const SamplerChain chain = MakeChain(SamplerParams{});
  double best_ms = 1e9;
  int64_t checksum = 0;
  for (uint64_t round = 0; round < 30; ++round) {
    const auto start = std::chrono::steady_clock::now();
    checksum += *chain.Sample(logits, {}, {}, 0, round);
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    best_ms = std::min(best_ms, elapsed.count());
  }
  EXPECT_GE(checksum, 0);
  RecordProperty("best_us", static_cast<int>(best_ms * 1000));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best_ms, 0.5);
#endif
}

TEST(RawLogprobsTest, TiesByLowerIdAndImpossibleTokensLast) {
  const std::vector<float> logits = {0, -kInf, 1, 1, std::nanf("")};
  const LogprobResult result = RawLogprobs(logits, 2, 9);
  ASSERT_EQ(result.top.size(), 5u);
  EXPECT_EQ(result.top[0].id, 2);
  EXPECT_EQ(result.top[1].id, 3);
  EXPECT_EQ(result.top[2].id, 0);
  EXPECT_EQ(result.top[3].id, 1);
  EXPECT_EQ(result.top[4].id, 4);
  EXPECT_EQ(result.top[3].logprob, -kInf);
  EXPECT_NEAR(result.chosen, -std::log(2 + std::exp(-1.0)), 1e-6);
  EXPECT_EQ(RawLogprobs(logits, 1, 0).chosen, -kInf);
  EXPECT_EQ(RawLogprobs(std::vector<float>{-kInf}, 0, 1).chosen, -kInf);
}

TEST(AllSamplersTest, ListsTheDefaultOrderFirst) {
  std::vector<std::string_view> names;
  for (const SamplerInfo& info : AllSamplers()) {
    names.push_back(info.name);
    EXPECT_FALSE(info.help.empty());
  }
  EXPECT_THAT(names, ElementsAre("penalties", "logit_bias", "top_k", "typical_p", "top_p", "min_p",
                                 "temperature", "greedy"));
}

}  // namespace
}  // namespace lucid
