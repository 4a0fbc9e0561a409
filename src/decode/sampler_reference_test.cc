// The sampling chain against reference results made elsewhere: transformers' logits processors
// (fixtures/component/sampling.*), float64 log-softmax (logprobs.*), and hand-checked cases
// (cases/).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/component_test_util.h"
#include "decode/sampler.h"

namespace lucid {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kShared = LUCID_SHARED_DIR;
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInf = std::numeric_limits<float>::infinity();

#define SKIP_WITHOUT(path)                                        \
  if (!fs::exists(path)) {                                        \
    GTEST_SKIP() << (path) << " is absent; see LUCID_SHARED_DIR"; \
  }

// The fixtures write -inf as the lowest float.
std::vector<float> Logits(const testing_util::ComponentFixture& fixture, const std::string& name) {
  std::vector<float> values = fixture.Floats(name);
  for (float& v : values) {
    if (v == kLowest) v = -kInf;
  }
  return values;
}

std::vector<json> ReadLines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line));
  return rows;
}

SamplerParams Neutral() {
  SamplerParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

// One [name, value] of a fixture chain; false for a processor that is not among our stages.
bool AddStage(const std::string& name, const json& value, SamplerParams& params) {
  std::string stage = name;
  if (name == "temperature") {
    params.temperature = value;
  } else if (name == "top_k") {
    params.top_k = value;
  } else if (name == "top_p") {
    params.top_p = value;
  } else if (name == "min_p") {
    params.min_p = value;
  } else if (name == "typical_p") {
    params.typical_p = value;
  } else if (name == "repetition_penalty") {
    params.repetition_penalty = value;
    stage = "penalties";
  } else if (name == "presence_frequency") {
    params.presence_penalty = value[0];
    params.frequency_penalty = value[1];
    stage = "penalties";
  } else {
    return false;
  }
  params.samplers.push_back(stage);
  return true;
}

TEST(SamplingReferenceTest, ChainsEqualTransformers) {
  LUCID_NEEDS_COMPONENTS();
  const testing_util::ComponentFixture fixture("sampling");
  int compared = 0;
  std::set<std::string> not_ours;  // scores and probabilities
  for (const json& row : fixture.cases) {
    SamplerParams params = Neutral();
    bool ours = true;
    for (const json& stage : row["chain"]) ours = ours && AddStage(stage[0], stage[1], params);
    if (!ours) {  // epsilon_cutoff, eta_cutoff, no_repeat_ngram
      not_ours.insert(row["scores"].get<std::string>());
      not_ours.insert(row["probs"].get<std::string>());
      continue;
    }
    ++compared;
    const std::string label = fmt::format("case {} {}", row["id"].dump(), row["chain"].dump());
    const auto history = row["history"].get<std::vector<int32_t>>();
    auto chain = SamplerChain::Create(params);
    ASSERT_TRUE(chain) << label << ": " << chain.error().message;
    auto distribution = chain->Distribution(Logits(fixture, row["logits"]), {}, history);
    ASSERT_TRUE(distribution) << label << ": " << distribution.error().message;
    const std::vector<float> scores = Logits(fixture, row["scores"]);
    const std::vector<float> probs = fixture.Floats(row["probs"]);
    std::vector<int32_t> expected_ids;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] > -kInf) expected_ids.push_back(static_cast<int32_t>(i));
    }
    std::vector<int32_t> ids;
    for (const TokenProb& token : *distribution) {
      ids.push_back(token.id);
      ASSERT_NEAR(std::exp(token.logprob), probs[static_cast<size_t>(token.id)], 1e-5) << label;
    }
    ASSERT_EQ(ids, expected_ids) << label;
  }
  EXPECT_EQ(compared, 199);
  EXPECT_EQ(not_ours.size(), 2 * 18u);
  fixture.ExpectAllRead([&](const std::string& array) { return not_ours.contains(array); });
}

TEST(SamplingReferenceTest, LogprobsEqualDoublePrecision) {
  LUCID_NEEDS_COMPONENTS();
  const testing_util::ComponentFixture fixture("logprobs");
  const std::vector<float> logits = Logits(fixture, "logits");
  const std::vector<float> expected = Logits(fixture, "logprobs");
  const std::vector<int32_t> target = fixture.Ints("target");
  const std::vector<float> nll = fixture.Floats("nll");
  const auto rows = static_cast<size_t>(fixture.Shape("logits")[0]);
  const auto vocab = static_cast<size_t>(fixture.Shape("logits")[1]);
  const auto logprob = [&](size_t row, size_t id) {
    return RawLogprobs(std::span(logits).subspan(row * vocab, vocab), static_cast<int32_t>(id), 0)
        .chosen;
  };
  for (size_t row = 0; row < rows; ++row) {
    for (size_t id = 0; id < vocab; ++id) {
      const float want = expected[row * vocab + id];
      EXPECT_NEAR(logprob(row, id), want, 1e-5 + 1e-6 * std::abs(want));
    }
    EXPECT_NEAR(-logprob(row, static_cast<size_t>(target[row])), nll[row],
                1e-5 + 1e-6 * std::abs(nll[row]));
  }
  for (const json& c : fixture.cases) {
    double sum = 0;
    for (const size_t row : c["rows"]) sum -= logprob(row, static_cast<size_t>(target[row]));
    const double mean = sum / static_cast<double>(c["rows"].size());
    EXPECT_NEAR(mean, c["mean_nll"].get<double>(), 1e-5);
    EXPECT_NEAR(std::exp(mean) / c["perplexity"].get<double>(), 1, 1e-5);
  }
  fixture.ExpectAllRead();
}

// Numbers as the case files write them: JSON numbers, or "-inf", "+inf", "NaN".
std::vector<float> Floats(const json& array) {
  std::vector<float> values;
  for (const json& v : array) {
    values.push_back(v.is_number() ? v.get<float>()
                                   : std::strtof(v.get<std::string>().c_str(), nullptr));
  }
  return values;
}

SamplerParams CaseParams(const json& fields) {
  SamplerParams params = Neutral();
  for (const auto& [name, value] : fields.items()) {
    if (name == "temperature") {
      params.temperature = value;
    } else if (name == "top_k") {
      params.top_k = value;
    } else if (name == "top_p") {
      params.top_p = value;
    } else if (name == "min_p") {
      params.min_p = value;
    } else if (name == "repetition_penalty") {
      params.repetition_penalty = value;
    } else if (name == "frequency_penalty") {
      params.frequency_penalty = value;
    } else if (name == "presence_penalty") {
      params.presence_penalty = value;
    } else {
      ADD_FAILURE() << "unknown parameter " << name;
    }
  }
  return params;
}

void CheckDistribution(const json& row, const std::vector<TokenProb>& distribution) {
  std::vector<int32_t> ids;
  for (const TokenProb& token : distribution) ids.push_back(token.id);
  ASSERT_EQ(ids, row["expect_kept"].get<std::vector<int32_t>>());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_NEAR(std::exp(distribution[i].logprob), row["expect_probs"][i].get<double>(), 1e-6);
  }
}

// The penalties show in the distribution: its log-probabilities are the expected logits plus a
// constant.
void CheckLogits(const json& row, const std::vector<TokenProb>& distribution) {
  const std::vector<float> expected = Floats(row["expect_logits"]);
  ASSERT_EQ(distribution.size(), expected.size());
  double sum = 0;
  for (const float logit : expected) sum += std::exp(double{logit});
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(distribution[i].logprob, expected[i] - std::log(sum), 1e-5);
  }
}

TEST(SamplingReferenceTest, HandCheckedCases) {
  SKIP_WITHOUT(kShared / "cases/sampler.jsonl");
  int rows = 0;
  for (const json& row : ReadLines(kShared / "cases/sampler.jsonl")) {
    SCOPED_TRACE(row["id"].get<std::string>());
    ++rows;
    auto chain = SamplerChain::Create(CaseParams(row["params"]));
    if (!chain) {
      EXPECT_TRUE(row.value("or_reject", false)) << chain.error().message;
      continue;
    }
    const std::vector<float> logits = Floats(row["logits"]);
    const auto prompt = row.value("prompt_ids", std::vector<int32_t>{});
    const auto reply = row.value("output_ids", std::vector<int32_t>{});
    if (row.contains("expect_token")) {
      EXPECT_EQ(*chain->Sample(logits, prompt, reply, 0, 0), row["expect_token"].get<int32_t>());
      continue;
    }
    auto distribution = chain->Distribution(logits, prompt, reply);
    ASSERT_TRUE(distribution) << distribution.error().message;
    if (row.contains("expect_kept")) CheckDistribution(row, *distribution);
    if (row.contains("expect_logits")) CheckLogits(row, *distribution);
    EXPECT_TRUE(row.contains("expect_kept") || row.contains("expect_logits"));
  }
  EXPECT_GE(rows, 34);
}

TEST(SamplingReferenceTest, LogprobCases) {
  SKIP_WITHOUT(kShared / "cases/logprobs.jsonl");
  int rows = 0;
  for (const json& row : ReadLines(kShared / "cases/logprobs.jsonl")) {
    SCOPED_TRACE(row["id"].get<std::string>());
    ++rows;
    const LogprobResult result =
        RawLogprobs(Floats(row["logits"]), row["chosen"], row["top_logprobs"]);
    const double tolerance = row["tolerance"];
    EXPECT_NEAR(result.chosen, row["expect_logprob"].get<double>(), tolerance);
    EXPECT_LE(result.chosen, 0);
    ASSERT_EQ(result.top.size(), row["expect_top"].size());
    for (size_t i = 0; i < result.top.size(); ++i) {
      EXPECT_EQ(result.top[i].id, row["expect_top"][i][0].get<int32_t>());
      if (row["expect_top"][i][1].is_null()) {
        EXPECT_EQ(result.top[i].logprob, -kInf);
      } else {
        EXPECT_NEAR(result.top[i].logprob, row["expect_top"][i][1].get<double>(), tolerance);
      }
    }
  }
  EXPECT_GE(rows, 8);
}

}  // namespace
}  // namespace lucid
