// The two published models that a package registry carries, from their GGUF files, against float32
// references made with the dequantised weights by Hugging Face transformers. Skips where a model
// was not pulled ('lucid pull smollm2', 'gemma3-270m').
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "format/safetensors.h"
#include "store/model_store.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

constexpr float kLogitTolerance = 5e-3f;
constexpr double kNllTolerance = 1e-3;

struct Case {
  const char* model;      // name in the store
  const char* reference;  // under fixtures/real, without extension
  BackendKind backend;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model;
}

class RealModel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string base =
        std::string(LUCID_SHARED_DIR) + "/fixtures/real/" + GetParam().reference;
    if (!std::filesystem::exists(base + ".json"))
      GTEST_SKIP() << "no reference at " << base << ".json";
    const Result<std::string> path = ResolveModel(GetParam().model);
    if (!path) GTEST_SKIP() << path.error().message;
    json_ = Json::parse(std::ifstream(base + ".json"));
    reference_ = *SafetensorsCheckpoint::Open(base + ".safetensors");
    EngineConfig config;
    config.model = *path;
    config.context = 512;
    config.backend = GetParam().backend;
    config.numerics = Numerics::kFloat;  // what the references were made with
    config.cache_type_k = config.cache_type_v = KvType::kF32;
    auto engine = Engine::Load(config);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = *std::move(engine);
  }

  std::span<const float> Expected(const std::string& name) const {
    const TensorEntry* entry = reference_->Find(name);
    if (entry == nullptr) return {};
    return {entry->tensor.f32(), static_cast<size_t>(entry->tensor.elements())};
  }

  Json json_;
  std::unique_ptr<SafetensorsCheckpoint> reference_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(RealModel, LogitsOfEveryPositionMatch) {
  const Json& texts = json_["texts"];
  for (size_t t = 0; t < texts.size(); ++t) {
    const auto ids = texts[t]["ids"].get<std::vector<int32_t>>();
    const std::string tag = "text" + std::to_string(t);
    const std::span<const float> want = Expected(tag + ".logits_strided");
    ASSERT_FALSE(want.empty()) << tag;
    const size_t kept = want.size() / ids.size();
    const auto vocab = static_cast<size_t>(engine_->model().config.vocab_size);
    const size_t stride = (vocab + kept - 1) / kept;
    float worst = 0;
    double nll = 0;
    Request scoring;
    scoring.prompt = ids;
    scoring.max_tokens = 0;
    scoring.logits_from = 0;
    scoring.on_logits = [&](int64_t position, std::span<const float> logits) {
      const auto row = static_cast<size_t>(position);
      for (size_t k = 0; k < kept; ++k)
        worst = std::max(worst, std::abs(logits[k * stride] - want[row * kept + k]));
      if (row + 1 < ids.size()) nll -= RawLogprobs(logits, ids[row + 1], 0).chosen;
    };
    EXPECT_EQ(TakeAll(engine_->Submit(std::move(scoring)).value())[0].cause, StopCause::kLength);
    EXPECT_LE(worst, kLogitTolerance) << tag;
    EXPECT_NEAR(nll / static_cast<double>(ids.size() - 1), texts[t]["mean_nll"].get<double>(),
                kNllTolerance)
        << tag;
  }
}

TEST_P(RealModel, TextGivesTheReferenceIds) {
  const Tokenizer& tokenizer = **engine_->tokenizer();
  for (const Json& text : json_["texts"]) {
    EXPECT_EQ(tokenizer.Encode(text["text"].get<std::string>()),
              text["ids"].get<std::vector<int32_t>>())
        << text["text"];
  }
}

TEST_P(RealModel, GreedyContinuationMatchesWhereTheModelIsSure) {
  for (const Json& text : json_["texts"]) {
    if (!text.contains("greedy_ids")) continue;
    const auto want = text["greedy_ids"].get<std::vector<int32_t>>();
    const auto gaps = text["greedy_top1_top2_gaps"].get<std::vector<float>>();
    Request request;
    request.prompt = text["ids"].get<std::vector<int32_t>>();
    request.sampling.temperature = 0;
    request.max_tokens = static_cast<int64_t>(want.size());
    request.ignore_eos = true;
    std::vector<int32_t> got;
    for (const TokenOutput& out : TakeAll(engine_->Submit(std::move(request)).value())) {
      got.push_back(out.id);
    }
    for (size_t i = 0; i < want.size() && gaps[i] > 4 * kLogitTolerance; ++i)
      ASSERT_EQ(got[i], want[i]) << text["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Published, RealModel,
    testing::Values(Case{"smollm2", "SmolLM2-135M-Instruct.Q4_1", BackendKind::kCpu},
                    Case{"smollm2", "SmolLM2-135M-Instruct.Q4_1", BackendKind::kReference},
                    Case{"gemma3-270m", "gemma-3-270m-q4_k_m", BackendKind::kCpu},
                    Case{"gemma3-270m", "gemma-3-270m-q4_k_m", BackendKind::kReference}),
    [](const auto& test) {
      return std::string(test.param.model[0] == 's' ? "smollm2" : "gemma3") +
             (test.param.backend == BackendKind::kCpu ? "_cpu" : "_reference");
    });

}  // namespace
}  // namespace lucid
