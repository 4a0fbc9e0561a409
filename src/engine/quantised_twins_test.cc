// The trained model as Q8_0 and Q4_0 GGUF files, against float32 references made with the
// dequantised weights: last logits, mean negative log-likelihood and greedy continuations, on both
// backends.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "format/safetensors.h"

namespace lucid {
namespace {

using Json = nlohmann::json;

const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures";
constexpr float kLogitTolerance = 1e-3f;
constexpr double kNllTolerance = 1e-4;
constexpr float kSureGap = 0.03f;  // below it, two tokens are too close to compare what follows

struct Case {
  const char* type;
  BackendKind backend;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.type;
}

class QuantisedTwin : public testing::TestWithParam<Case> {};

TEST_P(QuantisedTwin, MatchesItsReference) {
  if (!std::filesystem::exists(kFixtures)) GTEST_SKIP() << "no fixtures at " << kFixtures;
  const std::string type = GetParam().type;
  const std::string twins = kFixtures + "/gguf/models/stories_llama.";
  const auto facts = Json::parse(
      std::ifstream(twins + "reference.json"))["files"]["stories_llama." + type + ".gguf"];
  const auto prompts =
      Json::parse(std::ifstream(kFixtures + "/trained/stories_llama/reference.json"))["prompts"];
  const auto tensors = SafetensorsCheckpoint::Open(twins + "reference.safetensors");
  ASSERT_TRUE(tensors.has_value());
  EngineConfig config;
  config.model = twins + type + ".gguf";
  config.backend = GetParam().backend;
  config.numerics = Numerics::kFloat;  // what the references were made with
  config.cache_type_k = config.cache_type_v = KvType::kF32;
  const auto engine = Engine::Load(config);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;

  for (size_t p = 0; p < prompts.size(); ++p) {
    const auto ids = prompts[p]["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ((*(*engine)->tokenizer())->Encode(prompts[p]["text"].get<std::string>()), ids);
    std::vector<float> last;
    double nll = 0;
    Request scoring;
    scoring.prompt = ids;
    scoring.max_tokens = 0;
    scoring.logits_from = 0;
    scoring.on_logits = [&](int64_t position, std::span<const float> logits) {
      const auto row = static_cast<size_t>(position);
      if (row + 1 < ids.size()) nll -= RawLogprobs(logits, ids[row + 1], 0).chosen;
      last.assign(logits.begin(), logits.end());
    };
    EXPECT_EQ(TakeAll((*engine)->Submit(std::move(scoring)).value())[0].cause, StopCause::kLength);
    const TensorEntry* want =
        (*tensors)->Find(type + ".prompt" + std::to_string(p) + ".last_logits");
    ASSERT_NE(want, nullptr);
    for (size_t i = 0; i < last.size(); ++i) {
      ASSERT_NEAR(last[i], want->tensor.f32()[i], kLogitTolerance) << "prompt " << p << " id " << i;
    }
    const Json& expected = facts["prompts"][p];
    EXPECT_NEAR(nll / static_cast<double>(ids.size() - 1), expected["mean_nll"].get<double>(),
                kNllTolerance);

    const auto greedy = expected["greedy_ids"].get<std::vector<TokenId>>();
    const auto gaps = expected["top1_top2_gaps"].get<std::vector<float>>();
    Request request;
    request.prompt = ids;
    request.sampling.temperature = 0;
    request.max_tokens = static_cast<int64_t>(greedy.size());
    request.ignore_eos = true;
    std::vector<TokenId> got;
    for (const TokenOutput& out : TakeAll((*engine)->Submit(std::move(request)).value())) {
      got.push_back(out.id);
    }
    for (size_t i = 0; i < greedy.size() && gaps[i] > kSureGap; ++i)
      ASSERT_EQ(got[i], greedy[i]) << "prompt " << p;
  }
}

INSTANTIATE_TEST_SUITE_P(Stories, QuantisedTwin,
                         testing::Values(Case{"q8_0", BackendKind::kCpu},
                                         Case{"q8_0", BackendKind::kReference},
                                         Case{"q4_0", BackendKind::kCpu},
                                         Case{"q4_0", BackendKind::kReference}),
                         [](const auto& test) {
                           return std::string(test.param.type) +
                                  (test.param.backend == BackendKind::kCpu ? "_cpu" : "_reference");
                         });

}  // namespace
}  // namespace lucid
