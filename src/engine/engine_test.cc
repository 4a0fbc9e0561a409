// The engine on the small trained model: text in and out, stops, context limits, prefix reuse,
// seeds.
#include "engine/engine.h"
#include "engine/engine_test_util.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lucid {
namespace {

using testing::HasSubstr;

const std::string kStories = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";

struct Finished {
  std::string text;
  std::vector<TokenId> ids;
  StopCause cause = StopCause::kNone;
  RequestStats stats;
};

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kStories)) GTEST_SKIP() << "no model at " << kStories;
    engine_ = Start({.model = kStories});
  }

  static std::unique_ptr<Engine> Start(const EngineConfig& config) {
    auto engine = Engine::Load(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return *std::move(engine);
  }

  static Finished Generate(Engine& engine, Request request) {
    Finished result;
    auto stream = engine.Submit(std::move(request));
    EXPECT_TRUE(stream.has_value()) << stream.error().message;
    for (const TokenOutput& out : TakeAll(*std::move(stream))) {
      result.text += out.text;
      if (out.id >= 0) result.ids.push_back(out.id);
      if (out.cause != StopCause::kNone) {
        result.cause = out.cause;
        result.stats = out.stats;
      }
    }
    return result;
  }

  // The model was trained with <|bos|> (id 0) before every text, which its tokenizer.json does not
  // add.
  std::vector<TokenId> Encode(const std::string& text) const {
    std::vector<TokenId> ids = (*engine_->tokenizer())->Encode(text);
    ids.insert(ids.begin(), 0);
    return ids;
  }

  Request Greedy(const std::string& text, int64_t max_tokens) const {
    Request request;
    request.prompt = Encode(text);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }

  std::unique_ptr<Engine> engine_;
};

const char kPrompt[] = "Once upon a time there was a little cat named Mia.";

TEST_F(EngineTest, ContinuesAsTheReferenceDoes) {
  const auto reference = nlohmann::json::parse(std::ifstream(kStories + "/reference.json"));
  const auto& prompt = reference["prompts"][0];
  Request request;
  request.prompt = prompt["ids"].get<std::vector<TokenId>>();
  EXPECT_EQ(Encode(prompt["text"].get<std::string>()), request.prompt);
  request.sampling.temperature = 0;
  request.max_tokens = prompt["sure_prefix"].get<int64_t>();
  const Finished got = Generate(*engine_, std::move(request));
  const std::string want = prompt["greedy_text"];
  EXPECT_EQ(got.text, want.substr(0, got.text.size()));
  EXPECT_GE(got.text.size(), 20u);
  EXPECT_EQ(got.cause, StopCause::kLength);
}

TEST_F(EngineTest, AReplyEndsBeforeItsStopString) {
  const Finished whole = Generate(*engine_, Greedy(kPrompt, 20));
  Request request = Greedy(kPrompt, 20);
  request.stop = {whole.text.substr(8, 5)};
  const Finished stopped = Generate(*engine_, std::move(request));
  EXPECT_EQ(stopped.text, whole.text.substr(0, 8));
  EXPECT_EQ(stopped.cause, StopCause::kStopString);
}

TEST_F(EngineTest, APromptTooLongIsAnErrorWithBothNumbers) {
  auto engine = Start({.model = kStories, .context = 16});
  const auto id = engine->Submit(Greedy(kPrompt, 4));
  ASSERT_FALSE(id.has_value());
  EXPECT_EQ(id.error().code, ErrorCode::kContextLength);
  EXPECT_THAT(id.error().message, HasSubstr("17"));
  EXPECT_THAT(id.error().message, HasSubstr("16"));
  EXPECT_FALSE(engine->busy());
}

TEST_F(EngineTest, GenerationStopsAtTheContext) {
  auto engine = Start({.model = kStories, .context = 24});
  Request request = Greedy(kPrompt, -1);
  request.ignore_eos = true;
  const Finished got = Generate(*engine, std::move(request));
  EXPECT_EQ(got.cause, StopCause::kLength);
  EXPECT_EQ(got.ids.size(), 24u - 17u);
}

TEST_F(EngineTest, NothingWantedIsNothingDone) {
  const Finished got = Generate(*engine_, Greedy(kPrompt, 0));
  EXPECT_TRUE(got.ids.empty());
  EXPECT_EQ(got.cause, StopCause::kLength);
}

TEST_F(EngineTest, ACachedPrefixChangesNothing) {
  const Finished first = Generate(*engine_, Greedy(kPrompt, 12));
  EXPECT_EQ(first.stats.cached_tokens, 0);
  const Finished again = Generate(*engine_, Greedy(kPrompt, 12));
  EXPECT_EQ(again.stats.cached_tokens, 16);  // all but the last
  EXPECT_EQ(again.ids, first.ids);
  const Finished other = Generate(*engine_, Greedy("Once upon a time there was a dog.", 12));
  EXPECT_GT(other.stats.cached_tokens, 0);
  auto fresh = Start({.model = kStories});
  EXPECT_EQ(other.ids, Generate(*fresh, Greedy("Once upon a time there was a dog.", 12)).ids);
}

TEST_F(EngineTest, ASeedGivesOneTextWithAnyThreadCountAndBatch) {
  Request request = Greedy(kPrompt, 40);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 1234;
  const Finished want = Generate(*engine_, request);
  for (const int threads : {1, 2, 3}) {
    for (const int64_t batch : {1, 7, 512}) {
      auto engine = Start({.model = kStories, .n_threads = threads, .batch = batch});
      EXPECT_EQ(Generate(*engine, request).ids, want.ids) << threads << " threads, batch " << batch;
    }
  }
  request.sampling.seed = 1235;
  EXPECT_NE(Generate(*engine_, request).ids, want.ids);
  request.sampling.seed = 1234;
  request.rng_stream = 1;
  EXPECT_NE(Generate(*engine_, request).ids, want.ids);
}

TEST_F(EngineTest, AnAbortedRequestIsGone) {
  Stream stream = engine_->Submit(Greedy(kPrompt, -1)).value();
  ASSERT_TRUE(engine_->Step());
  engine_->Abort(stream.id());
  EXPECT_FALSE(engine_->busy());
  const std::vector<TokenOutput> outputs = TakeAll(std::move(stream));
  EXPECT_EQ(outputs.back().cause, StopCause::kAborted);
  EXPECT_EQ(outputs.back().stats.prompt_tokens, 17);
  EXPECT_EQ(Generate(*engine_, Greedy(kPrompt, 5)).ids.size(), 5u);
}

TEST_F(EngineTest, IdsOutsideTheVocabularyAreRefused) {
  Request request;
  request.prompt = {1, 512};
  const auto id = engine_->Submit(std::move(request));
  ASSERT_FALSE(id.has_value());
  EXPECT_THAT(id.error().message, HasSubstr("token id 512"));
}

TEST_F(EngineTest, AModelWithoutTokenizerStillComputes) {
  auto engine = Start({.model = std::string(LUCID_SHARED_DIR) + "/fixtures/models/qwen2"});
  EXPECT_FALSE(engine->tokenizer().has_value());
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.temperature = 0;
  request.max_tokens = 4;
  const Finished got = Generate(*engine, std::move(request));
  EXPECT_EQ(got.ids.size(), 4u);
  EXPECT_EQ(got.text, "");
}

}  // namespace
}  // namespace lucid
