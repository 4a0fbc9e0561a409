// The numbers that pages show: those of the texts' own models, and formulas against sums made here
// in another way.
#include "explain/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include "account/units.h"
#include "explain/papers.h"
#include "explain/site.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kConfigs = std::string(LUCID_SOURCE_DIR) + "/tests/data/configs/";
const std::string kStories = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";

struct Asked {
  std::string model, type = {}, hardware = "h100";
  int64_t context = 2048;
  std::string prompt = "Once upon a time, Tom had a dog.";
};

std::unique_ptr<Subject> Open(const Asked& asked) {
  SubjectOptions options;
  options.engine.model = asked.model;
  options.engine.context = asked.context;
  options.engine.n_threads = 1;
  options.name = "it";
  options.type = asked.type;
  options.hardware = asked.hardware;
  options.prompt = asked.prompt;
  return Subject::Open(std::move(options)).value();
}

std::string PageOf(std::string_view topic, const Asked& asked) {
  const std::unique_ptr<Subject> subject = Open(asked);
  const std::string page = TopicText(**FindTopic(topic), *subject).value();
  return std::regex_replace(page, std::regex("\\s+"), " ");  // wherever lines end
}

// The number of the first match of a pattern with one group.
double NumberIn(const std::string& page, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_search(page, match, std::regex(pattern))) {
    ADD_FAILURE() << pattern << " is not in " << page;
    return NAN;
  }
  std::string digits = match[1];
  std::erase(digits, ',');
  return std::stod(digits);
}

// A machine of one bandwidth.
std::string MachineFile(double gigabytes_per_second) {
  const std::string path = (fs::path(testing::TempDir()) / "lucid_explain_machine.json").string();
  std::ofstream(path) << R"({"name": "It", "read_gb_per_s": )" << gigabytes_per_second
                      << R"(, "memory_gb": 10, "tflop_per_s": {"16 bit": 10}})";
  return path;
}

TEST(OfTheTexts, Qwen25HeadsAndCache) {
  const Asked qwen{.model = kConfigs + "qwen2.5-7b.json"};
  const std::string qkv = PageOf("qkv", qwen);
  EXPECT_THAT(qkv, HasSubstr("28 x 128 = 3584"));
  EXPECT_THAT(qkv, HasSubstr("4 heads of 128 numbers"));
  EXPECT_THAT(qkv, HasSubstr("bias yes"));
  const std::string cache = PageOf("kv-cache", qwen);
  EXPECT_THAT(cache, HasSubstr("28 x 2 x 4 x 128 = 28,672 numbers"));
  EXPECT_THAT(cache, HasSubstr("57,344 bytes"));
  EXPECT_THAT(cache, HasSubstr("117,440,512 bytes, 117 MB"));
  EXPECT_THAT(cache, HasSubstr("11.7 GB"));
  EXPECT_THAT(cache, HasSubstr("822 MB (7.0 times; this is GQA)"));
  EXPECT_THAT(PageOf("gqa", qwen), HasSubstr("7 times"));
  EXPECT_THAT(PageOf("attention", qwen), HasSubstr("1 / 11.31"));
  EXPECT_THAT(PageOf("rope", qwen), HasSubstr("64 in a head of 128"));
  EXPECT_THAT(PageOf("logits", qwen), HasSubstr("[1, 3584] -> [1, 152064]"));
}

TEST(OfTheTexts, Qwen25StreamsLessThanItWeighs) {
  const Asked qwen{
      .model = kConfigs + "qwen2.5-7b.json", .type = "q4_k_m", .hardware = MachineFile(150)};
  const std::string page = PageOf("bandwidth", qwen);
  EXPECT_THAT(page, HasSubstr("4,677,120,000 bytes"));
  EXPECT_THAT(page, HasSubstr("4,370,558,976 bytes"));
  EXPECT_THAT(page, HasSubstr("34.3 tokens/s"));
  EXPECT_THAT(page, HasSubstr("32.1 tokens/s: too low"));
  EXPECT_THAT(PageOf("quantization", qwen), HasSubstr("4.913 bits a weight"));
}

TEST(OfTheTexts, Llama3ShapesAndCosts) {
  const Asked llama{.model = kConfigs + "llama-3-8b.json"};
  const std::string qkv = PageOf("qkv", llama);
  EXPECT_THAT(qkv, HasSubstr("32 x 128 = 4096"));
  EXPECT_THAT(qkv, HasSubstr("[1024, 4096]"));
  EXPECT_THAT(PageOf("overview", llama), HasSubstr("8,030,261,248"));
  const std::string cache = PageOf("kv-cache", llama);
  EXPECT_THAT(cache, HasSubstr("131,072 bytes"));
  EXPECT_THAT(cache, HasSubstr("4.10 kB"));  // 4 KiB a token and layer
  // 114,512 with norms in two bytes; a config.json has them in four.
  EXPECT_NEAR(NumberIn(cache, "From ([\\d,]+) tokens on"), 114512, 10);
  const std::string ffn = PageOf("ffn", llama);
  EXPECT_THAT(ffn, HasSubstr("14336: 3.500 times H"));
  EXPECT_THAT(ffn, HasSubstr("SwiGLU"));
  // 2 x 8.03e9 x 2048; 30.79 TFLOP of the layers' products and one row of logits, the full square.
  const std::string flops = PageOf("flops", llama);
  EXPECT_THAT(flops, HasSubstr("32.9 TFLOP"));
  EXPECT_THAT(flops, HasSubstr("30.8 TFLOP"));
  EXPECT_THAT(flops, HasSubstr("29.7 TFLOP"));
  EXPECT_THAT(flops, HasSubstr("16.1 GFLOP"));
  // Intensity of a decode step and of 32 of them: not 32 times as much.
  const std::string roofline = PageOf("roofline", llama);
  const double one = NumberIn(roofline, "decode, 1 sequence [\\d.]+ GFLOP [\\d.]+ GB ([\\d.]+)");
  const double many = NumberIn(roofline, "decode, 32 sequences [\\d.]+ GFLOP [\\d.]+ GB ([\\d.]+)");
  EXPECT_NEAR(one, 1.05, 0.01);
  EXPECT_NEAR(many / one, 20.2, 0.7);
}

TEST(OfTheTexts, DeepSeekKeepsOneLatentVector) {
  const std::string page = PageOf("mla", {.model = kConfigs + "deepseek-v3.json"});
  EXPECT_THAT(page, HasSubstr("512 numbers, and 64 rotated ones: 576"));
  EXPECT_THAT(page, HasSubstr("1,152 a token and layer"));
  EXPECT_THAT(page, HasSubstr("71.1 times as many"));
  EXPECT_THAT(page, HasSubstr("56.9 times as many"));
  EXPECT_THAT(PageOf("moe", {.model = kConfigs + "deepseek-v3.json"}),
              HasSubstr("256 in each of 58 layers, 8 of them"));
}

TEST(OfTheTexts, SixQuestions) {
  const std::string page = PageOf("self-test", {.model = kConfigs + "qwen2.5-7b.json"});
  for (int i = 1; i <= 6; ++i)
    EXPECT_THAT(page, HasSubstr(std::to_string(i) + ". " + (i == 2 ? "H" : "W")));
  EXPECT_THAT(page, HasSubstr("28 heads x 128 numbers = 3584; the width is 3584"));
  EXPECT_THAT(page, HasSubstr("sqrt(128) = 11.31"));
  EXPECT_THAT(page, HasSubstr("28 query heads, 4 key and value heads; 57,344 bytes a token instead "
                              "of 401,408, 7 times less; 117 MB"));
  // Ten times the arithmetic helps the prompt, and hardly the token.
  EXPECT_GT(NumberIn(page, "prompt would be ([\\d.]+) times as fast"), 5);
  EXPECT_LT(NumberIn(page, "the token ([\\d.]+) times"), 1.1);
}

TEST(OfTheTexts, SoftmaxAndPerplexityByHand) {
  const Asked gpt2{.model = kConfigs + "gpt2.json", .context = 512};
  const std::string softmax = PageOf("softmax", gpt2);
  EXPECT_THAT(softmax, HasSubstr("2 7.39 0.665"));
  EXPECT_THAT(softmax, HasSubstr("1 2.72 0.245"));
  EXPECT_THAT(softmax, HasSubstr("0 1.00 0.090"));
  EXPECT_THAT(softmax, HasSubstr("sum 11.11"));
  EXPECT_THAT(PageOf("attention", gpt2), HasSubstr("1 x 3 + 2 x 4 = 11"));
  EXPECT_THAT(PageOf("perplexity", gpt2), HasSubstr(Fixed(std::pow(0.0125, -1.0 / 3), 4)));
}

TEST(OfTheTexts, CachesSaveByLength) {
  // 100 tokens behind 10, and as the page counts them.
  const auto times = [](int64_t reply, int64_t prompt) {
    double without = 0;
    for (int64_t t = 1; t <= reply; ++t) without += static_cast<double>(prompt + t - 1);
    return without / static_cast<double>(prompt + reply - 1);
  };
  EXPECT_NEAR(times(100, 10), 54.6, 0.05);
  EXPECT_NEAR(times(2048, 2048), 1536, 1);
  const std::string page = PageOf("kv-cache", {.model = kConfigs + "gpt2.json", .context = 512});
  const double prompt = NumberIn(page, "behind this prompt of (\\d+)");
  EXPECT_NEAR(NumberIn(page, "without: ([\\d.]+) times"), times(100, static_cast<int64_t>(prompt)),
              0.06);
}

TEST(Formulas, RotationsDependOnTheDistanceAlone) {
  const std::string page = PageOf("rope", {.model = kConfigs + "llama-3-8b.json"});
  const double near = NumberIn(page, " 5 2 3 (-?[\\d.]+)");
  EXPECT_DOUBLE_EQ(near, NumberIn(page, "105 102 3 (-?[\\d.]+)"));
  EXPECT_DOUBLE_EQ(near, NumberIn(page, "1005 1002 3 (-?[\\d.]+)"));
  // Frequency 1: rotating by the distance gives the same.
  const double qa = 1 * std::cos(3.0) - 0.5 * std::sin(3.0),
               qb = std::sin(3.0) + 0.5 * std::cos(3.0);
  EXPECT_NEAR(near, qa * 0.8 + qb * -0.3, 1e-6);
  EXPECT_THAT(page, HasSubstr("theta 500000"));
}

TEST(Formulas, DistributionsAgainstPlainSums) {
  const std::vector<float> logits = {1.5F, -2.0F, 0.25F, 3.0F};
  const std::vector<double> p = Probabilities(logits, 2);
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) / 2);
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_NEAR(p[i], std::exp(static_cast<double>(logits[i]) / 2) / sum, 1e-12);
  }
  EXPECT_EQ(Probabilities(logits, 0), (std::vector<double>{0, 0, 0, 1}));
  const std::vector<double> even(4, 0.25);
  EXPECT_NEAR(Entropy(even), std::log(4.0), 1e-12);
  EXPECT_NEAR(Divergence(p, even), std::log(4.0) - Entropy(p), 1e-12);
  EXPECT_EQ(Largest(p, 2), (std::vector<int32_t>{3, 0}));
}

TEST(Formulas, StretchedRotations) {
  const std::string page = PageOf("position-scaling", {.model = kConfigs + "qwen2.5-7b.json"});
  EXPECT_THAT(page, HasSubstr(Fixed(0.1 * std::log(4.0) + 1, 4)));  // YaRN's factor for 4 times
  // The last pair of 64 under each rule: base 1,000,000, heads of 128, stretched by 4.
  const double plain = std::pow(1e6, -2.0 * 63 / 128);
  const double ntk = std::pow(1e6 * std::pow(4.0, 128.0 / 126), -2.0 * 63 / 128);
  std::smatch row;
  ASSERT_TRUE(std::regex_search(page, row, std::regex(" 63 (\\S+) (\\S+) (\\S+) (\\S+) (\\S+) ")));
  EXPECT_NEAR(std::stod(row[1]) / plain, 1, 0.005);
  EXPECT_NEAR(std::stod(row[2]) / (plain / 4), 1, 0.005);
  EXPECT_NEAR(std::stod(row[3]) / ntk, 1, 0.005);
  EXPECT_NEAR(std::stod(row[4]) / (plain / 4), 1, 0.005);  // hardly turns: as linear
  EXPECT_NEAR(std::stod(row[5]) / (plain / 4), 1, 0.005);
  // The first turns often: it stays, but for linear and NTK's rounding.
  ASSERT_TRUE(std::regex_search(page, row, std::regex(" 0 1 0.25 1 1 1 ")));
}

TEST(Formulas, SlopesOfAlibi) {
  const std::string page = PageOf("alibi", {.model = kConfigs + "gpt2.json", .context = 512});
  for (int h = 0; h < 8; ++h) {
    const double slope = std::pow(2.0, -(h + 1));
    EXPECT_NEAR(NumberIn(page, " " + std::to_string(h) + " ([\\d.e-]+) -"), slope, 1e-6 * slope);
  }
}

TEST(Formulas, NormsAndBendsByHand) {
  const std::string norm = PageOf("norm", {.model = kConfigs + "gpt2.json", .context = 512});
  const double rms = std::sqrt((9.0 + 1 + 4 + 0) / 4), deviation = std::sqrt((4.0 + 4 + 1 + 1) / 4);
  EXPECT_THAT(norm, HasSubstr("3 " + Fixed(3 / rms, 4) + " " + Fixed(2 / deviation, 4)));
  EXPECT_THAT(norm, HasSubstr("-1 " + Fixed(-1 / rms, 4) + " " + Fixed(-2 / deviation, 4)));
  const std::string ffn = PageOf("ffn", {.model = kConfigs + "gpt2.json", .context = 512});
  EXPECT_THAT(ffn, HasSubstr("two matrices with GELU, tanh form"));
  const double half = 1 / (1 + std::exp(-0.5));
  EXPECT_THAT(ffn, HasSubstr("0.5 " + Fixed(half, 4) + " " + Fixed(0.5 * half, 4)));
  // The tanh form lies within 0.0005 of x times the normal distribution.
  const double exact = 2 * 0.5 * (1 + std::erf(2 / std::sqrt(2.0)));
  EXPECT_NEAR(NumberIn(ffn, "2.0 0.8808 1.7616 ([\\d.]+)"), exact, 5e-4);
}

TEST(Formulas, ExpertsTouchedByAStep) {
  const std::string page = PageOf("moe", {.model = kConfigs + "deepseek-v3.json"});
  double untouched = 1;  // that an expert is left out by every token
  for (int t = 0; t < 32; ++t) untouched *= 1 - 8.0 / 256;
  EXPECT_NEAR(NumberIn(page, " 32 ([\\d.]+) "), 256 * (1 - untouched), 0.06);
}

TEST(Formulas, CeilingAndRoof) {
  const Asked gpt2{.model = kConfigs + "gpt2.json", .hardware = MachineFile(100), .context = 512};
  const std::string bandwidth = PageOf("bandwidth", gpt2);
  const double streamed = NumberIn(bandwidth, "streamed for a token ([\\d,]+) bytes");
  EXPECT_NEAR(NumberIn(bandwidth, "ceiling, empty cache ([\\d.]+)"), 100e9 / streamed, 0.06);
  const double keys = 12 * 2 * 768 * 2;  // bytes of a token: layers, keys and values, width, f16
  EXPECT_NEAR(NumberIn(bandwidth, "ceiling at 512 ([\\d.]+)"), 100e9 / (streamed + 512 * keys),
              1.0);  // and the token's own, which it writes
  const std::string roofline = PageOf("roofline", gpt2);
  EXPECT_NEAR(NumberIn(roofline, "ridge ([\\d.]+) FLOP per byte"), 10e12 / 100e9, 0.06);
  const double intensity =
      NumberIn(roofline, "decode, 1 sequence [\\d.]+ MFLOP [\\d.]+ MB ([\\d.]+)");
  EXPECT_NEAR(NumberIn(roofline, "memory ([\\d.]+) GFLOP/s"), intensity * 100,
              0.01 * intensity * 100);
}

class OfAModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kStories)) GTEST_SKIP() << "no fixture at " << kStories;
  }
  const Asked stories_{.model = kStories, .context = 64};
};

TEST_F(OfAModel, PerplexityIsThatOfTheLogits) {
  const std::unique_ptr<Subject> subject = Open(stories_);
  const PromptRun& run = **subject->run();
  double product = 1;
  for (size_t i = 0; i + 1 < subject->ids().size(); ++i) {
    double sum = 0;
    for (const float z : run.logits[i]) sum += std::exp(static_cast<double>(z));
    product *=
        sum /
        std::exp(static_cast<double>(run.logits[i][static_cast<size_t>(subject->ids()[i + 1])]));
  }
  const double expected = std::pow(product, 1.0 / static_cast<double>(subject->ids().size() - 1));
  EXPECT_NEAR(NumberIn(PageOf("perplexity", stories_), "perplexity ([\\d.]+) \\+/-"), expected,
              5e-4 * expected);
}

TEST_F(OfAModel, FiltersKeepWhatAPlainSearchKeeps) {
  const std::unique_ptr<Subject> subject = Open(stories_);
  const std::string page = PageOf("sampling", stories_);
  std::vector<double> p = Probabilities((**subject->run()).logits.back());
  std::sort(p.begin(), p.end(), std::greater<>());
  const auto kept_of = [&](const std::string& filter) {
    return NumberIn(page, filter + " .*? ([\\d,]+) [\\d.]+ %");
  };
  double sum = 0;
  size_t top_p = 0;
  while (sum < 0.5) sum += p[top_p++];
  EXPECT_EQ(kept_of("top-p 0\\.5"), static_cast<double>(top_p));
  while (sum < 0.95) sum += p[top_p++];
  EXPECT_EQ(kept_of("top-p 0\\.95"), static_cast<double>(top_p));
  const auto min_p = std::count_if(p.begin(), p.end(), [&](double v) { return v >= 0.05 * p[0]; });
  EXPECT_EQ(kept_of("min-p 0\\.05"), static_cast<double>(min_p));
  EXPECT_EQ(kept_of("top-k 40"), 40);
  // -log p nearest to the entropy first.
  const double entropy = Entropy(p);
  std::sort(p.begin(), p.end(), [entropy](double a, double b) {
    return std::abs(-std::log(a) - entropy) < std::abs(-std::log(b) - entropy);
  });
  sum = 0;
  size_t typical = 0;
  while (sum < 0.9) sum += p[typical++];
  EXPECT_EQ(kept_of("typical-p 0\\.9"), static_cast<double>(typical));
}

TEST_F(OfAModel, PenaltiesFollowTheirFormula) {
  const std::unique_ptr<Subject> subject = Open(stories_);
  std::vector<float> z = (**subject->run()).logits.back();
  const std::vector<int32_t> top = Largest(Probabilities(z), 2);
  const std::string page = PageOf("penalties", stories_);
  z[static_cast<size_t>(top[0])] -= 3;  // frequency 1: three times there, and once
  z[static_cast<size_t>(top[1])] -= 1;
  const double expected = Probabilities(z)[static_cast<size_t>(top[0])];
  EXPECT_NEAR(NumberIn(page, " 3 [\\d.]+ [\\d.]+ ([\\d.]+) [\\d.]+ "), expected, 1e-4);
}

TEST_F(OfAModel, TheRuleOfSpeculationGivesTheTargetBack) {
  const std::string page = PageOf("speculative", stories_);
  // token, p, q, accepted, residual, what comes out
  const std::regex row(R"((0\.\d{4}) (0\.\d{4}) ([01]\.\d{3}) (\d\.\d{4}) (\d\.\d{4}))");
  int rows = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it, ++rows) {
    EXPECT_EQ((*it)[1], (*it)[5]);
  }
  EXPECT_GE(rows, 4);
  const double a = NumberIn(page, "a, over the prompt ([\\d.]+)");
  double expected = 0;
  for (int j = 0; j <= 4; ++j) expected += std::pow(a, j);  // 1 + a + ... + a^k
  EXPECT_NEAR(NumberIn(page, " 4 ([\\d.]+) [\\d.]+ [\\d.]+ 6 "), expected, 2e-3);
}

TEST_F(OfAModel, ARowOfAttentionAddsUpToOne) {
  Asked asked = stories_;
  for (int i = 0; i < 5; ++i) asked.prompt += " " + stories_.prompt;
  const std::unique_ptr<Subject> subject = Open(asked);
  ASSERT_GT(subject->ids().size(), 40U);
  const PromptAttention& attention = **subject->attention();
  ASSERT_EQ(attention.maps.size(), subject->plan().kv_layers.size());
  const KvSpec& middle = subject->plan().kv_layers[subject->plan().kv_layers.size() / 2];
  EXPECT_EQ(attention.keys.size(),
            subject->ids().size() * static_cast<size_t>(middle.heads * middle.k_dim));
  for (const AttentionMap& map : attention.maps) {
    ASSERT_EQ(map.queries.size(), subject->ids().size());
    for (const AttentionQuery& query : map.queries) {
      EXPECT_EQ(query.n_keys, query.position + 1);
      double sum = 0;
      for (int64_t key = 0; key < query.n_keys; ++key) {
        sum += static_cast<double>(query.Weight(0, key));
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST_F(OfAModel, FewerBitsOfTheCacheRoundMore) {
  const std::string page = PageOf("kv-compression", stories_);
  double before = 0;
  for (const char* type : {"f16", "int8", "int4", "int2"}) {
    const double error =
        NumberIn(page, std::string(" ") + type + " [\\d.]+ [\\d,]+ [\\d.]+ [kM]?B ([\\d.]+) %");
    EXPECT_GT(error, before) << type;
    before = error;
  }
}

TEST_F(OfAModel, TheStudentComesNearToItsTeacher) {
  const std::string page = PageOf("distillation", stories_);
  const double before = NumberIn(page, "before ([\\d.]+) nats");
  const double after = NumberIn(page, "after 300 steps ([\\d.]+) nats");
  const double least = NumberIn(page, "the best it can be ([\\d.]+) nats");
  EXPECT_LT(after, before);
  EXPECT_GE(after, least - 1e-4);
  EXPECT_LT(after - least, 0.25 * (before - least));
}

TEST_F(OfAModel, FlashAttentionGivesTheSameThreeWays) {
  const std::string page = PageOf("flash-attention", stories_);
  const double direct = NumberIn(page, "all at once (-?[\\d.]+)");
  EXPECT_DOUBLE_EQ(NumberIn(page, "block by block (-?[\\d.]+)"), direct);
  EXPECT_DOUBLE_EQ(NumberIn(page, "two parts, merged (-?[\\d.]+)"), direct);
}

TEST_F(OfAModel, SequencesShareBlocksAndWasteLessThanOne) {
  const std::string page = PageOf("paged-attention", stories_);
  EXPECT_THAT(page, HasSubstr("found of A, B, C 0, 8, 0 tokens"));
  EXPECT_LT(NumberIn(page, "waste (\\d+) places"), 4);
}

TEST_F(OfAModel, TokensAddUpToThePrompt) {
  const std::unique_ptr<Subject> subject = Open(stories_);
  const std::string page = PageOf("tokens", stories_);
  EXPECT_THAT(page, HasSubstr(stories_.prompt));
  EXPECT_EQ(NumberIn(page, "had a dog\\. (\\d+) "), static_cast<double>(stories_.prompt.size()));
}

}  // namespace
}  // namespace lucid
