// Models whose positions need the engine's help: rotations that depend on the length of a sequence,
// learned positions that end, and what users may change at load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/describe.h"
#include "engine/engine.h"
#include "engine/engine_test_util.h"

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kModels = std::string(LUCID_SHARED_DIR) + "/fixtures/models/";

#define LUCID_NEEDS_MODELS() \
  if (!std::filesystem::exists(kModels)) GTEST_SKIP() << "no models at " << kModels

std::unique_ptr<Engine> Start(EngineConfig config) {
  config.model = kModels + config.model;
  config.numerics = Numerics::kFloat;
  config.cache_type_k = config.cache_type_v = KvType::kF32;
  auto engine = Engine::Load(config);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return *std::move(engine);
}

std::vector<TokenId> Reply(Engine& engine, const std::vector<TokenId>& prompt, int64_t max_tokens) {
  Request request;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  auto stream = engine.Submit(std::move(request));
  if (!stream.has_value()) {
    ADD_FAILURE() << stream.error().message;
    return {};
  }
  std::vector<TokenId> ids;
  for (const TokenOutput& out : TakeAll(*std::move(stream))) {
    if (out.id >= 0) ids.push_back(out.id);
  }
  return ids;
}

// The short prompt stays below the border, the long one begins beyond it. The second round finds
// the prompts in the cache, in which the two must not be mixed up.
TEST(PositionsTest, RepliesOfModelsThatRotateByLengthEqualTheReference) {
  LUCID_NEEDS_MODELS();
  for (const char* model : {"phi3_longrope", "llama_rope_dynamic"}) {
    const auto reference =
        nlohmann::json::parse(std::ifstream(kModels + model + "/reference.json"));
    for (const int64_t chunk : {0, 16}) {
      const auto engine = Start({.model = model, .context = 128, .chunk = chunk});
      for (int round = 0; round < 2; ++round) {
        for (const auto& [name, prompt] : reference["prompts"].items()) {
          const auto ids = prompt["ids"].get<std::vector<TokenId>>();
          const auto want = prompt["greedy"]["ids"].get<std::vector<TokenId>>();
          EXPECT_EQ(Reply(*engine, ids, std::ssize(want)), want)
              << model << " " << name << " chunk " << chunk << " round " << round;
        }
      }
    }
  }
}

// A long prompt that begins like a short one may not take its keys: they are rotated otherwise.
TEST(PositionsTest, APrefixRotatedForAnotherLengthIsNotShared) {
  LUCID_NEEDS_MODELS();
  for (const char* model : {"phi3_longrope", "llama_rope_dynamic"}) {
    const auto reference =
        nlohmann::json::parse(std::ifstream(kModels + model + "/reference.json"));
    const auto& prompt = reference["prompts"]["long"];
    const auto ids = prompt["ids"].get<std::vector<TokenId>>();
    const auto want = prompt["greedy"]["ids"].get<std::vector<TokenId>>();
    const auto engine = Start({.model = model, .context = 128, .kv_block_size = 8});
    std::ignore = Reply(*engine, {ids.begin(), ids.begin() + 40}, 1);
    EXPECT_EQ(Reply(*engine, ids, std::ssize(want)), want) << model;
  }
}

TEST(PositionsTest, LearnedPositionsEndTheContext) {
  LUCID_NEEDS_MODELS();
  const auto engine = Engine::Load({.model = kModels + "gpt2", .context = 129});
  ASSERT_FALSE(engine.has_value());
  EXPECT_THAT(engine.error().message, HasSubstr("129"));
  EXPECT_THAT(engine.error().message, HasSubstr("128 positions"));
}

TEST(PositionsTest, KeysThatDependOnLengthAreNotMovedByEviction) {
  LUCID_NEEDS_MODELS();
  const auto engine = Start({.model = "phi3_longrope"});
  Request request;
  request.prompt = {1, 2, 3};
  request.eviction = {KvPolicy::kWindowSink, 32};
  const auto stream = engine->Submit(std::move(request));
  ASSERT_FALSE(stream.has_value());
  EXPECT_THAT(stream.error().message, HasSubstr("window_sink"));
}

// Linear scaling by 4 in the file, and the same model told so by hand.
TEST(PositionsTest, ScalingByHandIsThatOfTheFile) {
  LUCID_NEEDS_MODELS();
  const std::vector<TokenId> prompt = {5, 9, 31, 7, 80, 12, 44, 3, 3, 250, 17, 9};
  const auto reply = [&](const RopeOverrides& rope) {
    return Reply(*Start({.model = "llama_rope_linear", .rope = rope}), prompt, 40);
  };
  const std::vector<TokenId> want = reply({});
  EXPECT_EQ(reply({.scaling = RopeSpec::Scaling::kLinear, .scale = 4.0}), want);
  EXPECT_NE(reply({.scaling = RopeSpec::Scaling::kNone}), want);
}

TEST(PositionsTest, AreDescribed) {
  LUCID_NEEDS_MODELS();
  const auto describe = [](const char* model, const RopeOverrides& rope = {}) {
    const auto described = DescribeModel(kModels + model, rope);
    return described ? described->positions : std::vector<std::string>{described.error().message};
  };
  EXPECT_THAT(describe("gpt2"), ElementsAre("learned, 128 positions"));
  EXPECT_THAT(describe("bloom"), ElementsAre("ALiBi, largest bias 8"));
  EXPECT_THAT(describe("phi"), ElementsAre("rope, theta 10000, 8 of 16 dimensions"));
  EXPECT_THAT(describe("llama_rope_yarn"),
              ElementsAre("rope, theta 10000, 32 dimensions, yarn by 4 from 64, attention factor "
                          "1.13863"));
  EXPECT_THAT(describe("smollm3"), ElementsAre("rope, theta 5000, 16 dimensions (2 of 3 layers)",
                                               "none (1 of 3 layers)"));
  EXPECT_THAT(describe("phi", {.freq_base = 500.0}),
              ElementsAre("rope, theta 500, 8 of 16 dimensions"));
  EXPECT_THAT(describe("gpt2", {.freq_base = 500.0}),
              ElementsAre(HasSubstr("does not rotate positions")));
}

}  // namespace
}  // namespace lucid
