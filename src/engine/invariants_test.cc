// The invariants over runs of every reference model, and over records in which one fact was made
// false: each must fail then, and no other.
#include "engine/invariants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "engine/traced_run.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

const std::string kModels = std::string(LUCID_SHARED_DIR) + "/fixtures/models/";

struct Recorded {
  ModelConfig config;
  std::vector<StepRecord> steps;
};

Recorded Record(const std::string& path, KvType kv = KvType::kF16, int64_t prompt = 10,
                int64_t decode_steps = 3, BackendKind backend = BackendKind::kCpu) {
  EngineConfig config;
  config.model = path;
  config.n_threads = 2;
  config.context = prompt + decode_steps + 1;
  config.kv_block_size = 16;
  config.cache_type_k = config.cache_type_v = kv;
  config.backend = backend;
  PrepareForTrace(2, prompt, config);
  const std::unique_ptr<Engine> engine = Engine::Load(config).value();
  StepRecorder recorder;
  const Status ran =
      RunObserved(*engine, MadeUpPrompts(2, prompt, engine->model().config.vocab_size),
                  decode_steps, {.every = {&recorder}});
  EXPECT_TRUE(ran.has_value()) << ran.error().message;
  return {engine->model().config, recorder.steps()};
}

std::map<std::string, InvariantResult> Check(const Recorded& run) {
  std::map<std::string, InvariantResult> results;
  for (InvariantResult& result : CheckInvariants(run.steps, run.config)) {
    results[result.id] = std::move(result);
  }
  return results;
}

bool Rotates(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, &LayerConfig::use_rope);
}

void ExpectAllHold(const Recorded& run, const std::string& what) {
  for (const auto& [id, result] : Check(run)) {
    const bool none = id == "rope-on-qk" && !Rotates(run.config);
    EXPECT_EQ(result.verdict, none ? Verdict::kNotApplicable : Verdict::kPass)
        << what << ": " << id << ": " << result.found;
    EXPECT_FALSE(result.claim.empty() || result.found.empty()) << id;
  }
}

TEST(InvariantsTest, HoldInRunsOfEveryReferenceModel) {
  if (!fs::exists(kModels)) GTEST_SKIP() << "no reference models in " << kModels;
  size_t models = 0, without_rotation = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModels)) {
    const std::string name = entry.path().filename();
    const Recorded run = Record(entry.path().string());
    // One prefill of both prompts, then steps of a token each.
    ASSERT_EQ(run.steps.size(), 4u) << name;
    EXPECT_FALSE(run.steps[0].generated());
    EXPECT_TRUE(run.steps[3].generated());
    ASSERT_EQ(run.steps[0].sequences.size(), 2u);
    ExpectAllHold(run, name);
    if (!Rotates(run.config)) ++without_rotation;
    ++models;
  }
  EXPECT_GT(models, 30u);
  EXPECT_GT(without_rotation, 3u);  // learned positions, ALiBi
}

// Longer than the windows of these models, so that places leave the cache.
TEST(InvariantsTest, HoldBeyondAWindow) {
  for (const char* name : {"mistral_swa", "gpt_oss", "gemma3_text", "cohere2"}) {
    if (!fs::exists(kModels + name)) GTEST_SKIP() << "no model " << name;
    const Recorded run = Record(kModels + name, KvType::kF16, 70, 20);
    ExpectAllHold(run, name);
    EXPECT_NE(Check(run)["cache-appended"].found.find("have left a window"), std::string::npos)
        << name;
  }
}

TEST(InvariantsTest, HoldForEveryTypeOfTheCacheAndOnTheReference) {
  if (!fs::exists(kModels)) GTEST_SKIP() << "no reference models in " << kModels;
  for (const KvType type : AllKvTypes()) {
    ExpectAllHold(Record(kModels + "llama3_gqa", type), std::string(Name(type)));
  }
  for (const char* name : {"llama3_gqa", "deepseek_v3", "qwen3"}) {
    ExpectAllHold(Record(kModels + name, KvType::kF16, 10, 3, BackendKind::kReference), name);
  }
}

// A fault in what was recorded, and the invariant that must notice.
struct Fault {
  const char* name;
  const char* id;
  std::function<void(Recorded&)> plant;
  const char* also = "";  // another that must notice it
};

class InvariantFaults : public testing::TestWithParam<Fault> {};

TEST_P(InvariantFaults, IsNoticedByItsInvariantAlone) {
  const std::string path = kModels + "llama3_gqa";
  if (!fs::exists(path)) GTEST_SKIP() << "no model " << path;
  static const Recorded kSound = Record(path);
  Recorded run = kSound;
  GetParam().plant(run);
  for (const auto& [id, result] : Check(run)) {
    const bool fails = id == GetParam().id || id == GetParam().also;
    EXPECT_EQ(result.verdict, fails ? Verdict::kFail : Verdict::kPass)
        << id << ": " << result.found;
    EXPECT_FALSE(result.found.empty()) << id;
  }
}

const Fault kFaults[] = {
    {"WiderResidual", "residual-shape", [](Recorded& r) { r.steps[0].residual[2].width *= 2; }},
    {"ResidualOfFewerTokens", "residual-shape",
     [](Recorded& r) { r.steps[1].residual.back().rows -= 1; }},
    {"LayerWithoutResidual", "residual-shape",
     [](Recorded& r) {
       std::erase_if(r.steps[1].residual, [](const RecordedShape& s) { return s.layer == 1; });
     }},
    {"KeysAsManyAsQueries", "qkv-shapes",
     [](Recorded& r) { r.steps[0].heads[0].n_kv = r.steps[0].heads[0].n_q; }},
    {"TooFewQueries", "qkv-shapes", [](Recorded& r) { r.steps[2].heads[1].q_numbers -= 1; }},
    {"NarrowValues", "qkv-shapes", [](Recorded& r) { r.steps[0].heads[1].v_numbers /= 2; }},
    {"LayerWithoutAttention", "qkv-shapes", [](Recorded& r) { r.steps[1].heads.pop_back(); }},
    {"OldKeyOverwritten", "cache-appended",
     [](Recorded& r) { r.steps[2].cache[1].places[4] ^= 1; }},
    {"PlaceNotAppended", "cache-appended",
     [](Recorded& r) { r.steps[3].cache[0].places.pop_back(); }},
    {"ValuesRotated", "rope-on-qk",
     [](Recorded& r) { r.steps[0].rotations[1].part = RotatedPart::kValue; }},
    {"RotationToNowhere", "rope-on-qk",
     [](Recorded& r) { r.steps[0].rotations[0].part = RotatedPart::kNothing; }},
    {"WrongAngle", "rope-on-qk", [](Recorded& r) { r.steps[1].rotations[0].error = 0.2; }},
    {"KeysNotTurned", "rope-on-qk", [](Recorded& r) { r.steps[1].rotations[1].moved = false; }},
    {"OtherValuesStored", "rope-on-qk", [](Recorded& r) { r.steps[0].values[0].error = 0.1; }},
    {"QueriesOnly", "rope-on-qk",
     [](Recorded& r) {
       std::erase_if(r.steps[0].rotations,
                     [](const RecordedRotation& t) { return t.part == RotatedPart::kKey; });
     }},
    {"FutureKeySeen", "causal-mask",
     [](Recorded& r) {
       AttentionQuery& query = r.steps[0].attention[0].queries[3];
       // One more key, without weight, so that the rows still sum to 1.
       std::vector<float> wider;
       for (size_t i = 0; i < query.weights.size(); ++i) {
         wider.push_back(query.weights[i]);
         if ((i + 1) % static_cast<size_t>(query.n_keys) == 0) wider.push_back(0);
       }
       query.weights = wider;
       ++query.n_keys;
     }},
    {"DecodeWithoutItsOldestKey", "causal-mask",
     [](Recorded& r) { ++r.steps[1].attention[0].queries[0].first_key; }},
    {"RowBelowOne", "softmax-rows",
     [](Recorded& r) { r.steps[0].attention[1].queries[5].weights[0] -= 0.01f; }},
    {"NegativeWeight", "softmax-rows",
     [](Recorded& r) {
       std::vector<float>& weights = r.steps[0].attention[0].queries[5].weights;
       weights[1] += 2 * weights[0];
       weights[0] = -weights[0];
     }},
    {"NotANumber", "softmax-rows",
     [](Recorded& r) { r.steps[1].attention[0].queries[0].weights[0] = NAN; }},
    {"KernelGaveSomethingElse", "softmax-rows",
     [](Recorded& r) { r.steps[1].outputs[0].error = 0.5; }, "causal-mask"},
};

INSTANTIATE_TEST_SUITE_P(Planted, InvariantFaults, testing::ValuesIn(kFaults),
                         [](const auto& test) { return test.param.name; });

TEST(InvariantsTest, ARunThatShowsNothingProvesNothing) {
  const std::string path = kModels + "llama3_gqa";
  if (!fs::exists(path)) GTEST_SKIP() << "no model " << path;
  Recorded run = Record(path);
  run.steps.resize(1);  // the prefill alone: no cache was there before, no decode step ran
  std::map<std::string, InvariantResult> results = Check(run);
  EXPECT_EQ(results["cache-appended"].verdict, Verdict::kFail);
  EXPECT_EQ(results["causal-mask"].verdict, Verdict::kFail);
  run.steps.clear();
  results = Check(run);
  for (const char* id : {"residual-shape", "qkv-shapes", "softmax-rows"}) {
    EXPECT_EQ(results[id].verdict, Verdict::kFail) << id;
  }
}

}  // namespace
}  // namespace lucid
