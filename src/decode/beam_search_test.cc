// Beam search against the exhaustive search over a small made-up language model.
#include "decode/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lucid {
namespace {

constexpr int32_t kVocab = 5;
constexpr int32_t kEnd = 0;

// Log-probabilities of the next token; they depend on the last two tokens.
class Language {
 public:
  explicit Language(uint32_t seed) : rng_(seed) {
    for (auto& row : rows_) {
      double sum = 0;
      for (float& x : row) sum += x = std::exp(std::normal_distribution<float>(0, 1.5f)(rng_));
      for (float& x : row) x = static_cast<float>(std::log(x / sum));
    }
  }

  std::vector<TokenProb> Next(std::span<const int32_t> tokens, size_t n) const {
    const int32_t a = tokens.empty() ? 0 : tokens.back();
    const int32_t b = tokens.size() < 2 ? 0 : tokens[tokens.size() - 2];
    std::vector<TokenProb> all;
    for (int32_t id = 0; id < kVocab; ++id) {
      all.push_back({id, rows_[static_cast<size_t>(a * kVocab + b)][static_cast<size_t>(id)]});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const TokenProb& x, const TokenProb& y) { return x.logprob > y.logprob; });
    all.resize(std::min(n, all.size()));
    return all;
  }

 private:
  std::mt19937 rng_;
  std::array<std::array<float, kVocab>, kVocab * kVocab> rows_;
};

struct Text {
  std::vector<int32_t> tokens;
  double sum = 0;
};

std::vector<BeamHypothesis> Search(const Language& language, int32_t width, double penalty,
                                   size_t length) {
  BeamSearch search(width, penalty, [](int32_t id) { return id == kEnd; });
  std::vector<Text> beams(1);
  for (size_t n = 1; !beams.empty(); ++n) {
    std::vector<std::vector<TokenProb>> next;
    std::vector<BeamSearch::Beam> in;
    for (const Text& b : beams)
      next.push_back(language.Next(b.tokens, 2 * static_cast<size_t>(width)));
    for (size_t i = 0; i < beams.size(); ++i) {
      in.push_back({beams[i].tokens, {}, beams[i].sum, next[i]});
    }
    std::vector<Text> grown;
    for (const BeamSearch::Next& b : search.Step(in, n == length)) {
      Text text = beams[static_cast<size_t>(b.parent)];
      text.tokens.push_back(b.token.id);
      text.sum = b.logprob_sum;
      grown.push_back(std::move(text));
    }
    beams = std::move(grown);
  }
  return {search.finished().begin(), search.finished().end()};
}

// Every text of up to `length` tokens, with the search's score.
std::vector<double> AllScores(const Language& language, double penalty, size_t length) {
  std::vector<double> scores;
  std::vector<Text> open(1);
  for (size_t n = 1; n <= length; ++n) {
    std::vector<Text> grown;
    for (const Text& text : open) {
      for (const TokenProb& token : language.Next(text.tokens, kVocab)) {
        Text longer = text;
        longer.tokens.push_back(token.id);
        longer.sum += static_cast<double>(token.logprob);
        if (token.id == kEnd || n == length) {
          scores.push_back(longer.sum / std::pow(static_cast<double>(n), penalty));
        } else {
          grown.push_back(std::move(longer));
        }
      }
    }
    open = std::move(grown);
  }
  std::sort(scores.rbegin(), scores.rend());
  return scores;
}

TEST(BeamSearch, AWideEnoughBeamFindsTheBestTexts) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Language language(seed);
    // Without a length penalty a living text can only get worse, so the search is exact when the
    // beam holds every open text: 4^3 of them.
    const std::vector<double> want = AllScores(language, 0.0, 4);
    const std::vector<BeamHypothesis> got = Search(language, 64, 0.0, 4);
    ASSERT_GE(got.size(), 5u);
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(got[i].score, want[i], 1e-6) << seed;
  }
}

TEST(BeamSearch, OneBeamIsGreedyUntilItEnds) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Language language(seed);
    std::vector<int32_t> greedy;
    do {
      greedy.push_back(language.Next(greedy, 1)[0].id);
    } while (greedy.back() != kEnd && greedy.size() < 6);
    const std::vector<BeamHypothesis> got = Search(language, 1, 1.0, 6);
    ASSERT_EQ(got.size(), 1u);
    // An end token that is only the second best is passed over; the best one ends the text.
    EXPECT_EQ(got[0].tokens, greedy) << seed;
    EXPECT_EQ(got[0].ended, greedy.back() == kEnd);
  }
}

TEST(BeamSearch, ScoresFollowTheLengthPenalty) {
  const Language language(3);
  for (const double penalty : {0.0, 0.7, 1.0, 2.0}) {
    for (const BeamHypothesis& h : Search(language, 4, penalty, 7)) {
      double sum = 0;
      for (size_t i = 0; i < h.tokens.size(); ++i) {
        for (const TokenProb& t : language.Next(std::span(h.tokens).first(i), kVocab)) {
          if (t.id == h.tokens[i]) sum += static_cast<double>(t.logprob);
        }
      }
      EXPECT_NEAR(h.logprob_sum, sum, 1e-5);
      EXPECT_NEAR(h.score, sum / std::pow(h.tokens.size(), penalty), 1e-5);
    }
  }
}

TEST(BeamSearch, ResultsComeBestFirstAndNoMoreThanTheWidth) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const std::vector<BeamHypothesis> got = Search(Language(seed), 3, 1.0, 8);
    EXPECT_LE(got.size(), 3u);
    EXPECT_TRUE(std::is_sorted(got.begin(), got.end(),
                               [](const auto& a, const auto& b) { return a.score > b.score; }));
  }
}

}  // namespace
}  // namespace lucid
