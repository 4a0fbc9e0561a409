// What the ways of computing with quantised weights promise, on the published models: a small mean
// KL divergence from float32, for prompts and for replies. Skips where a model was not pulled.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "engine/kv_audit.h"
#include "kernels/table.h"
#include "store/model_store.h"

namespace lucid {
namespace {

using Rows = std::vector<std::vector<float>>;

std::unique_ptr<Engine> Load(const std::string& path, Numerics numerics, int64_t chunk = 0) {
  EngineConfig config;
  config.model = path;
  config.context = 512;
  config.n_parallel = 1;
  config.cache_type_k = config.cache_type_v = KvType::kF32;
  config.numerics = numerics;
  config.chunk = chunk;
  return Engine::Load(config).value();
}

// The logits of every position from `first` on; `as_reply`: computed one token at a time.
Rows Score(Engine& engine, const std::vector<TokenId>& ids, int64_t first, bool as_reply) {
  Rows rows;
  Request request;
  request.prompt.assign(ids.begin(), as_reply ? ids.begin() + first : ids.end());
  if (as_reply) request.forced_reply.assign(ids.begin() + first, ids.end());
  if (!as_reply) request.max_tokens = 0;
  request.logits_from = first;
  request.on_logits = [&](int64_t, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  };
  EXPECT_NE(TakeAll(engine.Submit(std::move(request)).value()).back().cause, StopCause::kError);
  rows.resize(ids.size() - static_cast<size_t>(first) - 1);
  return rows;
}

double MeanKl(const Rows& want, const Rows& got) {
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) sum += KlDivergence(want[i], got[i]);
  return sum / static_cast<double>(want.size());
}

class NumericsOf : public testing::TestWithParam<const char*> {};

TEST_P(NumericsOf, PromptsAndRepliesStayCloseToFloat) {
  const Result<std::string> path = ResolveModel(GetParam());
  if (!path) GTEST_SKIP() << path.error().message;
  const std::string text = std::string(LUCID_SHARED_DIR) + "/data/wikitext-2/wiki.test.raw";
  if (!std::filesystem::exists(text)) GTEST_SKIP() << "no text at " << text;
  std::string sample(4000, ' ');
  std::ifstream(text).read(sample.data(), std::ssize(sample));
  const auto exact = Load(*path, Numerics::kFloat);
  std::vector<TokenId> ids = (*exact->tokenizer())->Encode(sample);
  ASSERT_GE(ids.size(), 400u);
  ids.resize(400);
  constexpr int64_t kFirst = 100;
  const Rows want = Score(*exact, ids, kFirst, false);
  const auto standard = Load(*path, Numerics::kDefault);
  EXPECT_LE(MeanKl(want, Score(*standard, ids, kFirst, false)), 1e-3);
  EXPECT_LE(MeanKl(want, Score(*standard, ids, kFirst, true)), 1e-3);
  const auto fast = Load(*path, Numerics::kFast);
  const double kl = MeanKl(want, Score(*fast, ids, kFirst, false));
  EXPECT_LE(kl, 0.016);
  EXPECT_LE(MeanKl(want, Score(*fast, ids, kFirst, true)), 0.016);
  // With AMX, prompts meet tiles of bfloat16 whatever is asked for (docs/adr/0016).
  if (SelectTables("").value().front()->isa != "amx") {
    EXPECT_GT(kl, 1e-4) << "fast is as exact as the default: then why have it?";
  }
}

TEST_P(NumericsOf, FastPromptsHaveTheSameBitsForAnyChunk) {
  const Result<std::string> path = ResolveModel(GetParam());
  if (!path) GTEST_SKIP() << path.error().message;
  std::vector<TokenId> ids(60);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(1000 + 37 * i);
  const Rows want = Score(*Load(*path, Numerics::kFast), ids, 40, false);
  for (const int64_t chunk : {1, 7, 32}) {
    EXPECT_EQ(Score(*Load(*path, Numerics::kFast, chunk), ids, 40, false), want) << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Published, NumericsOf, testing::Values("smollm2", "gemma3-270m"),
                         [](const auto& test) {
                           return std::string(test.param[0] == 's' ? "smollm2" : "gemma3");
                         });

}  // namespace
}  // namespace lucid
