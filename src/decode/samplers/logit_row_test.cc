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

// The row kernels of every instruction set that this machine can run.
std::vector<const RowKernels*> AllRowKernels() {
  std::vector<const RowKernels*> all;
  for (const char* isa : {"generic", "avx2", "avx512"}) {
    if (const auto tables = SelectTables(isa)) all.push_back(&RowKernelsOf(*tables));
  }
  return all;
}

TEST(LogitRow, FindsWhatAListHolds) {
  std::mt19937 random(1);
  LogitRow row;
  const auto kernels = AllRowKernels();
  for (int round = 0; round < 300; ++round) {
    auto logits = RandomLogits(random, 1 + random() % (round % 3 == 0 ? 5000 : 200));
    row.Reset(logits, *kernels[random() % kernels.size()]);
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
    auto all = All(logits);
    if (!all.empty() && round % 2 == 1) {
      const float temperature = std::exp(static_cast<float>(random() % 1000) / 50 - 10);
      row.Temper(temperature);
      const double max = MaxLogit(all);
      for (Candidate& c : all) c.logit = static_cast<float>((c.logit - max) / temperature);
    }
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

TEST(LogitRow, WeightsAndDrawsAreThoseOfTheList) {
  std::mt19937 random(2);
  LogitRow row;
  int drawn = 0, certain = 0;
  for (const RowKernels* kernels : AllRowKernels()) {
    for (int round = 0; round < 120; ++round) {
      auto logits = RandomLogits(random, round % 4 == 0 ? 40000 : 1 + random() % 3000);
      row.Reset(logits, *kernels);
      for (size_t i = 0; i < logits.size(); i += 100) {
        if (float* logit = row.Find(static_cast<int32_t>(i))) logits[i] = *logit += 0.25f;
      }
      auto all = All(logits);
      if (round % 2 == 1) {
        row.Temper(0.7f);
        for (const double max = all.empty() ? 0 : MaxLogit(all); Candidate & c : all)
          c.logit = static_cast<float>((c.logit - max) / 0.7f);
      }
      const bool infinite =
          std::any_of(logits.begin(), logits.end(), [](float x) { return x >= FLT_MAX; });
      EXPECT_EQ(row.CanWeigh(), !all.empty() && !infinite);
      if (!row.CanWeigh()) continue;
      double sum = 0;
      for (const Candidate& c : all) sum += std::exp(c.logit - static_cast<double>(row.Max()));
      EXPECT_NEAR(row.Weight(), sum, LogitRow::kError * sum);
      for (const double u : {0.0, 0.1, 0.5, 0.77, 0.999, 1 - 1e-16}) {
        double reached = 0;
        size_t i = 0;
        while (i < all.size() &&
               (reached += std::exp(all[i].logit - static_cast<double>(row.Max()))) <= u * sum)
          ++i;
        const auto got = row.Draw(u);
        drawn += 1;
        certain += got.has_value() ? 1 : 0;
        if (got) {
          EXPECT_EQ(*got, all.at(i));
        }
      }
    }
  }
  EXPECT_GT(certain, drawn * 3 / 4);  // 0 and the last are doubtful where the edge weighs little
}

// No sort and no list of the vocabulary: a block is looked into only where its maximum calls for
// it.
TEST(LogitRow, TheLargestAreFoundInAFewBlocks) {
  static int blocks_read, blocks_weighed;
  static const RowKernels& real = BestRowKernels();
  RowKernels counting = real;
  counting.at_least = [](const float* x, float limit) {
    ++blocks_read;
    return real.at_least(x, limit);
  };
  counting.weights = [](const float* x, int64_t n, const RowScale& scale, double* sums) {
    blocks_weighed += static_cast<int>(n);
    real.weights(x, n, scale, sums);
  };
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> logits(151936);
  for (float& x : logits) x = normal(random);
  SamplerParams params;
  params.repetition_penalty = 1.2f;
  for (const float temperature : {0.0f, 0.8f}) {
    params.temperature = temperature;
    blocks_read = blocks_weighed = 0;
    const auto chain = SamplerChain::Create(params, counting);
    ASSERT_TRUE(chain && chain->Sample(logits, {}, std::vector<int32_t>{5, 70000}, 1, 2));
    EXPECT_LE(blocks_read, temperature == 0 ? 0 : 40);
    EXPECT_EQ(blocks_weighed, 0);
  }
  params.top_k = 0;  // top_p needs the sum of all
  blocks_read = 0;
  const auto chain = SamplerChain::Create(params, counting);
  ASSERT_TRUE(chain && chain->Sample(logits, {}, {}, 1, 2));
  EXPECT_EQ(blocks_weighed, 151936 / 64);
}

TEST(LogitRow, PenaltiesTouchOnlyTokensThatOccurred) {
  std::mt19937 random(5);
  SamplerParams off;
  off.samplers = {"penalties"};
  SamplerParams on = off;
  on.repetition_penalty = 1.4f;
  on.frequency_penalty = 0.3f;
  on.presence_penalty = -0.2f;
  const std::vector<int32_t> prompt = {3, 900, 900, 17}, reply = {17, 4000, 17, -1, 70000};
  std::vector<float> logits(5000);
  for (float& x : logits) x = static_cast<float>(random() % 13) - 6;
  const auto before = SamplerChain::Create(off)->Distribution(logits, prompt, reply);
  const auto after = SamplerChain::Create(on)->Distribution(logits, prompt, reply);
  ASSERT_TRUE(before && after);
  ASSERT_EQ(after->size(), logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double change =
        (*after)[i].logprob - (*after)[0].logprob - ((*before)[i].logprob - (*before)[0].logprob);
    const float x = logits[i];
    double wanted = 0;
    if (i == 3 || i == 900 || i == 17 || i == 4000) wanted = (x > 0 ? x / 1.4 : x * 1.4) - x;
    if (i == 17) wanted -= 2 * 0.3 - 0.2;
    if (i == 4000) wanted -= 0.3 - 0.2;
    EXPECT_NEAR(change, wanted, 1e-5) << i;
  }
}

// A report needs every stage's list; without one the front of the chain works on the row.
TEST(LogitRow, ChainsDrawTheSameTokensAsOnLists) {
  std::mt19937 random(3);
  std::vector<SamplerParams> chains(12);
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
  chains[7] = chains[5];
  chains[7].min_p = 0;
  chains[8] = chains[7];
  chains[8].temperature = 1;
  chains[8].presence_penalty = 0.5f;
  chains[9].samplers = {"temperature", "top_k", "top_p"};
  chains[9].temperature = 1.7f;
  chains[10].samplers = {"temperature", "top_p", "min_p"};
  chains[10].top_p = 0.99f;
  chains[11].samplers = {"temperature", "penalties", "typical_p"};
  chains[11].typical_p = 0.8f;
  chains[11].repetition_penalty = 1.5f;
  const auto kernels = AllRowKernels();
  for (int round = 0; round < 120; ++round) {
    const auto logits = RandomLogits(random, round % 2 == 0 ? 30000 : 20 + random() % 1000);
    std::vector<int32_t> prompt(random() % 100), reply(random() % 100);
    for (auto* tokens : {&prompt, &reply}) {
      for (int32_t& id : *tokens) id = static_cast<int32_t>(random() % logits.size());
    }
    for (size_t i = 0; i < chains.size(); ++i) {
      chains[i].seed = random();
      const auto chain = SamplerChain::Create(chains[i], *kernels[random() % kernels.size()]);
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
