// The row's searches against those of plain lists, and chains that begin on a row against the same
// chains on a list.
#include "decode/samplers/logit_row.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "decode/samplers/select.h"

namespace lucid {

static bool operator==(const Candidate& a, const Candidate& b) {
  return a.id == b.id && a.logit == b.logit;
}

namespace {

// Logits of several shapes: broad, many ties, some impossible or infinite, all equal, a peak over a
// body.
std::vector<float> RandomLogits(std::mt19937& random, size_t n) {
  const int shape = static_cast<int>(random() % 6);
  std::normal_distribution<float> normal;
  std::vector<float> logits(n);
  for (float& x : logits) {
    const float g = normal(random);
    x = shape == 0 ? g : shape == 1 ? 4 * g : shape == 2 ? std::round(2 * g) : shape == 3 ? 1 : g;
  }
  if (shape == 4) {
    for (size_t i = 0; i < n / 2; ++i) logits[random() % n] = i % 3 == 0 ? NAN : -INFINITY;
    if (random() % 2 == 0) logits[random() % n] = INFINITY;
  }
  if (shape == 5) {
    for (int i = 0; i < 100; ++i)
      logits[random() % n] = 14 - 2 * std::log(static_cast<float>(i + 1)) + normal(random) / 4;
  }
  return logits;
}

std::vector<Candidate> All(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -INFINITY)
      all.push_back({static_cast<int32_t>(id), std::min(logits[id], FLT_MAX)});
  }
  return all;
}

TEST(LogitRow, FindsWhatAListHolds) {
  std::mt19937 random(1);
  LogitRow row;
  for (int round = 0; round < 300; ++round) {
    auto logits = RandomLogits(random, 1 + random() % (round % 3 == 0 ? 5000 : 200));
    row.Reset(logits);
    for (int i = 0; i < 20; ++i) {
      const auto id = static_cast<int32_t>(random() % (logits.size() + 2)) - 1;
      float* found = row.Find(id);
      const bool is_candidate = id >= 0 && static_cast<size_t>(id) < logits.size() &&
                                logits[static_cast<size_t>(id)] > -INFINITY;
      ASSERT_EQ(found != nullptr, is_candidate);
      if (found == nullptr) continue;
      EXPECT_EQ(*found, std::min(logits[static_cast<size_t>(id)], FLT_MAX));
      *found = i % 5 == 0 ? -INFINITY : *found / 2 + 0.5f;
      logits[static_cast<size_t>(id)] = *found;
    }
    const auto all = All(logits);
    std::vector<Candidate> got;
    row.ForEach([&](const Candidate& c) { got.push_back(c); });
    ASSERT_EQ(got, all);
    if (all.empty()) {
      EXPECT_EQ(row.Max(), -INFINITY);
      continue;
    }
    EXPECT_EQ(row.Max(), MaxLogit(all));
    const auto best = std::max_element(all.begin(), all.end(),
                                       [](auto& a, auto& b) { return a.logit < b.logit; });
    EXPECT_EQ(row.Best(), *best);
    for (const size_t k : {size_t{1}, size_t{2}, size_t{40}, all.size() / 2 + 1, all.size() + 7}) {
      const float limit = k > all.size() ? -INFINITY : KthLargestLogit(all, k);
      auto wanted = all;
      std::erase_if(wanted, [limit](const Candidate& c) { return c.logit < limit; });
      row.Largest(k, got);
      EXPECT_EQ(got, wanted) << k;
      row.AtLeast(limit, got);
      EXPECT_EQ(got, wanted) << k;
    }
  }
}

TEST(LogitRow, TailWeightIsWithinItsError) {
  std::mt19937 random(2);
  LogitRow row;
  for (int round = 0; round < 100; ++round) {
    const auto logits = RandomLogits(random, 20000);
    row.Reset(logits);
    if (row.Max() > LogitRow::kMaxForTail) continue;
    for (const float below : {0.0f, 0.5f, 3.0f, 12.0f}) {
      const float limit = row.Max() - below;
      double sum = 0;
      for (const Candidate& c : All(logits)) {
        if (c.logit < limit) sum += std::exp(c.logit - static_cast<double>(row.Max()));
      }
      EXPECT_NEAR(row.TailWeight(limit), sum, LogitRow::kTailError * sum + 1e-10);
    }
  }
}

// A report needs every stage's list; without one the front of the chain works on the row.
TEST(LogitRow, ChainsDrawTheSameTokensAsOnLists) {
  std::mt19937 random(3);
  std::vector<SamplerParams> chains(7);
  chains[1].repetition_penalty = 1.3f;
  chains[1].frequency_penalty = 0.2f;
  chains[1].repeat_last_n = 50;
  chains[2].temperature = 0;
  chains[2].presence_penalty = 1;
  chains[2].logit_bias = {{0, -INFINITY}, {5, 3.0f}};
  chains[3].top_k = 0;
  chains[3].min_p = 0;
  chains[4] = chains[3];
  chains[4].top_p = 0.6f;
  chains[4].min_keep = 3;
  chains[4].repetition_penalty = 1.1f;
  chains[5].top_k = 0;
  chains[5].top_p = 1;
  chains[6].samplers = {"top_p", "logit_bias", "penalties", "top_k"};
  chains[6].logit_bias = {{7, 2.0f}};
  chains[6].repetition_penalty = 2;
  for (int round = 0; round < 120; ++round) {
    const auto logits = RandomLogits(random, round % 2 == 0 ? 30000 : 20 + random() % 1000);
    std::vector<int32_t> prompt(random() % 100), reply(random() % 100);
    for (auto* tokens : {&prompt, &reply}) {
      for (int32_t& id : *tokens) id = static_cast<int32_t>(random() % logits.size());
    }
    for (size_t i = 0; i < chains.size(); ++i) {
      chains[i].seed = random();
      const auto chain = SamplerChain::Create(chains[i]);
      ASSERT_TRUE(chain);
      SampleReport report;
      const auto on_row = chain->Sample(logits, prompt, reply, 1, 2);
      const auto on_list = chain->Sample(logits, prompt, reply, 1, 2, &report);
      ASSERT_EQ(on_row.has_value(), on_list.has_value());
      if (!on_row) {
        EXPECT_EQ(on_row.error().message, on_list.error().message);
        continue;
      }
      EXPECT_EQ(*on_row, *on_list) << "chain " << i << ", round " << round;
      const auto kept = chain->Distribution(logits, prompt, reply);
      ASSERT_TRUE(kept);
      if (!report.stages.empty()) {
        EXPECT_EQ(std::ssize(*kept), report.stages.back().kept_after);
      }
    }
  }
}

}  // namespace
}  // namespace lucid
