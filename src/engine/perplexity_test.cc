#include "engine/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lucid {
namespace {

using testing::HasSubstr;

const std::string kStories = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";

double LogProb(std::span<const float> logits, TokenId token) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  return static_cast<double>(logits[static_cast<size_t>(token)]) - std::log(sum);
}

TEST(RunningMean, IsTheMeanAndItsError) {
  RunningMean mean;
  EXPECT_EQ(mean.stderr_of_mean(), 0);
  for (const double x : {1.0, 2.0, 3.0, 6.0}) mean.Add(x);
  EXPECT_DOUBLE_EQ(mean.mean(), 3.0);
  EXPECT_DOUBLE_EQ(mean.stderr_of_mean(), std::sqrt(14.0 / 4 / 3));
}

class PerplexityTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kStories)) GTEST_SKIP() << "no " << kStories;
    EngineConfig config;
    config.model = kStories;
    config.cache_type_k = config.cache_type_v = KvType::kF32;
    engine_ = Engine::Load(config).value();
    const auto reference = nlohmann::json::parse(std::ifstream(kStories + "/reference.json"));
    text_ = reference["held_out"]["ids"].get<std::vector<TokenId>>();
    text_.resize(200);
  }
  const Tokenizer& tokenizer() { return *engine_->tokenizer().value(); }
  // The text through a meter.
  Status Score(PerplexityMeter& meter, const WindowOptions& windows) {
    return ScoreText(
        *engine_, text_, windows, [&](const ScoredRow& row) { return meter.Add(row); },
        [](int64_t) {});
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> text_;
};

TEST_F(PerplexityTest, ScoresTheSecondHalvesOfWindows) {
  const WindowOptions windows = {.context = 64};
  std::vector<int64_t> positions;
  double nll = 0;
  ASSERT_TRUE(ScoreText(
      *engine_, text_, windows,
      [&](const ScoredRow& row) -> Status {
        EXPECT_EQ(row.token, text_[static_cast<size_t>(row.position)]);
        positions.push_back(row.position);
        nll -= LogProb(row.logits, row.token);
        return {};
      },
      [](int64_t) {}));
  ASSERT_EQ(positions.size(), 3 * 31u);
  for (size_t i = 0; i < positions.size(); ++i) {
    EXPECT_EQ(positions[i], static_cast<int64_t>(i / 31 * 64 + 33 + i % 31));
  }
  PerplexityMeter meter(tokenizer(), nullptr, nullptr);
  ASSERT_TRUE(Score(meter, windows));
  EXPECT_EQ(meter.tokens(), 3 * 31);
  EXPECT_NEAR(meter.cross_entropy(), nll / (3 * 31), 1e-6);
  EXPECT_NEAR(meter.perplexity(), std::exp(nll / (3 * 31)), 1e-4);
  EXPECT_GT(meter.perplexity_stderr(), 0);
  std::string text;
  for (const int64_t p : positions) text += tokenizer().PieceBytes(text_[static_cast<size_t>(p)]);
  EXPECT_NEAR(meter.bits_per_byte(), nll / std::log(2.0) / static_cast<double>(text.size()), 1e-6);
}

TEST_F(PerplexityTest, AStrideScoresTheLastTokensOfEachWindow) {
  std::vector<int64_t> positions;
  ASSERT_TRUE(ScoreText(
      *engine_, text_, {.context = 60, .stride = 8, .windows = 2},
      [&](const ScoredRow& row) -> Status {
        positions.push_back(row.position);
        return {};
      },
      [](int64_t) {}));
  ASSERT_EQ(positions.size(), 16u);
  EXPECT_EQ(positions.front(), 56);
  EXPECT_EQ(positions[7], 63);
  EXPECT_EQ(positions[8], 64);
}

TEST_F(PerplexityTest, AModelIsNoDistanceFromItself) {
  const std::string path = testing::TempDir() + "/lucid_base.lkl";
  const WindowOptions windows = {.context = 64, .windows = 3};
  {
    auto save =
        DistributionWriter::Create(path, {engine_->model().config.vocab_size, windows, text_});
    ASSERT_TRUE(save.has_value()) << save.error().message;
    PerplexityMeter meter(tokenizer(), nullptr, &*save);
    ASSERT_TRUE(Score(meter, windows));
    ASSERT_TRUE(save->Commit());
  }
  auto base = DistributionReader::Open(path);
  ASSERT_TRUE(base.has_value()) << base.error().message;
  EXPECT_EQ(base->header().text, text_);
  PerplexityMeter meter(tokenizer(), &*base, nullptr);
  ASSERT_TRUE(Score(meter, base->header().windows));
  const BaseComparison& c = *meter.comparison();
  EXPECT_EQ(c.kld.count(), 3 * 31);
  EXPECT_LT(c.kld.mean(), 1e-5);  // what 16 bits leave out
  EXPECT_EQ(c.same_top1.mean(), 1);
  EXPECT_NEAR(c.log_ratio.mean(), 0, 1e-9);
  EXPECT_THAT(base->Next().error().message, HasSubstr("no more"));

  // A file that is cut off or changed is refused.
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string whole = bytes.str();
  for (const size_t size : {size_t{0}, size_t{7}, size_t{40}, size_t{100}, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(size));
    EXPECT_FALSE(DistributionReader::Open(path).has_value()) << size;
  }
  for (size_t at = 8; at < 48; at += 8) {
    std::string changed = whole;
    changed[at + 5] = 127;
    std::ofstream(path, std::ios::binary).write(changed.data(), std::ssize(changed));
    EXPECT_FALSE(DistributionReader::Open(path).has_value()) << at;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lucid
