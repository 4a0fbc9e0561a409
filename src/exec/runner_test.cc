// The executors against Hugging Face transformers: logits, hidden states and greedy continuations
// of the tiny reference models, from safetensors and from GGUF, on the reference kernels and on
// every instruction set of this machine.
#include "exec/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "exec/key_rotation.h"
#include "format/safetensors.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // the short prompt comes first, as written

const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures";

// Tolerances of the fixtures' README.
constexpr float kLogitTolerance = 1e-3f;
constexpr float kHiddenTolerance = 1e-4f;  // of the tensor's largest value

struct Case {
  std::string name;       // for the test's name
  std::string model;      // path under fixtures/
  std::string reference;  // path under fixtures/ without extension
  std::string isa;        // "reference" or an instruction set
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " on " << c.isa;
}

// A prompt of a reference file, whichever of its two layouts it has.
struct Prompt {
  std::string tag;  // prefix of its tensors
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;  // up to the first step where two tokens are close
};

std::vector<Prompt> ReadPrompts(const Json& reference) {
  std::vector<Prompt> prompts;
  const Json& list = reference["prompts"];
  for (const auto& [key, facts] : list.items()) {
    Prompt p{.tag = list.is_array() ? "prompt" + key : key,
             .ids = facts["ids"].get<std::vector<int32_t>>(),
             .greedy = {}};
    if (facts.contains("greedy")) p.greedy = facts["greedy"]["ids"].get<std::vector<int32_t>>();
    if (facts.contains("greedy_ids")) {
      p.greedy = facts["greedy_ids"].get<std::vector<int32_t>>();
      p.greedy.resize(std::min(p.greedy.size(), facts["sure_prefix"].get<size_t>()));
    }
    prompts.push_back(std::move(p));
  }
  return prompts;
}

// On every instruction set of this machine; of the models in `only` where it names any.
std::vector<Case> Cases(const std::vector<std::string>& only = {}) {
  const std::vector<std::pair<std::string, std::string>> models = {
      {"models/llama_mha_tied", "models/llama_mha_tied/reference"},
      {"models/llama3_gqa", "models/llama3_gqa/reference"},
      {"models/llama_biases", "models/llama_biases/reference"},
      {"models/llama_rope_linear", "models/llama_rope_linear/reference"},
      {"models/qwen2", "models/qwen2/reference"},
      {"models/gemma3_text", "models/gemma3_text/reference"},
      {"models/gemma3_text_scaled", "models/gemma3_text_scaled/reference"},
      {"gguf/models/llama_mha_tied.gguf", "models/llama_mha_tied/reference"},
      {"gguf/models/llama3_gqa.gguf", "models/llama3_gqa/reference"},
      {"gguf/models/qwen2.gguf", "models/qwen2/reference"},
      {"models/mixtral", "models/mixtral/reference"},
      {"gguf/models/mixtral.gguf", "models/mixtral/reference"},
      {"models/qwen2_moe", "models/qwen2_moe/reference"},
      {"models/qwen3_moe", "models/qwen3_moe/reference"},
      {"models/olmoe", "models/olmoe/reference"},
      {"models/granitemoe", "models/granitemoe/reference"},
      {"models/glm4_moe", "models/glm4_moe/reference"},
      {"models/gpt_oss", "models/gpt_oss/reference"},
      {"models/gpt_oss_mxfp4", "models/gpt_oss_mxfp4/reference"},
      {"models/deepseek_v2_lite", "models/deepseek_v2_lite/reference"},
      {"models/deepseek_v2", "models/deepseek_v2/reference"},
      {"models/deepseek_v3", "models/deepseek_v3/reference"},
      {"models/deepseek_v3_noqlora", "models/deepseek_v3_noqlora/reference"},
      {"gguf/models/olmoe.gguf", "models/olmoe/reference"},
      {"trained/stories_llama", "trained/stories_llama/reference"},
      {"trained/stories_draft", "trained/stories_draft/reference"},
  };
  std::vector<std::string> isas = {"reference"};
  if (const auto tables = SelectTables(""); tables) {
    for (const KernelTable* table : *tables) {
      if (table->isa != "reference") isas.emplace_back(table->isa);
    }
  }
  std::vector<Case> cases;
  for (const auto& [model, reference] : models) {
    if (!only.empty() && std::find(only.begin(), only.end(), model) == only.end()) continue;
    for (const std::string& isa : isas) {
      std::string name = fs::path(model).filename().string() + "_" + isa;
      std::replace(name.begin(), name.end(), '.', '_');
      cases.push_back({name, model, reference, isa});
    }
  }
  return cases;
}

// Collects the residual streams and module outputs that the references hold.
class HiddenTap : public Observer {
 public:
  void AfterOp(const ObservedOp& observed) override {
    for (const Value v : observed.op.outputs) {
      const ValueInfo& info = observed.plan.Info(v);
      if (info.kind != ValueKind::kActivation) continue;
      const std::span<const float> values = observed.Read(v);
      std::vector<float>& kept = taps[info.name];
      kept.insert(kept.end(), values.begin(), values.end());
    }
  }
  std::map<std::string, std::vector<float>> taps;
};

class Fixture : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kPositions = 256;
  static constexpr int64_t kSequences = 2;

  void SetUp() override {
    if (!fs::exists(kFixtures)) GTEST_SKIP() << "the reference fixtures are not at " << kFixtures;
    Result<Model> model = LoadModel(kFixtures + "/" + GetParam().model);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::make_unique<Model>(*std::move(model));
    auto reference =
        SafetensorsCheckpoint::Open(kFixtures + "/" + GetParam().reference + ".safetensors");
    ASSERT_TRUE(reference.has_value()) << reference.error().message;
    reference_ = *std::move(reference);
    prompts_ =
        ReadPrompts(Json::parse(std::ifstream(kFixtures + "/" + GetParam().reference + ".json")));

    StartRunner(2);
  }

  // In the numbers that the references were made with.
  void StartExact(bool fuse = true) {
    numerics_ = Numerics::kFloat;
    StartRunner(2, fuse);
  }
  void StartRunner(int n_threads, bool fuse = true, KvType type = KvType::kF32,
                   int64_t block_size = 16) {
    RunnerOptions options;
    options.backend = GetParam().isa == "reference" ? BackendKind::kReference : BackendKind::kCpu;
    options.isa = GetParam().isa == "reference" ? "" : GetParam().isa;
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads_batch_;
    options.fuse = fuse;
    options.max_tokens = kPositions;
    options.max_outputs = 128;
    options.kv = {.k_type = type, .v_type = type, .block_size = block_size};
    options.numerics = numerics_;
    MakeTables(options);
    auto runner = Runner::Create(*model_, options);
    ASSERT_TRUE(runner.has_value()) << runner.error().message;
    runner_ = *std::move(runner);
  }

  // Block tables for kSequences sequences of kPositions, every pool's blocks in an order that no
  // contiguous cache would have.
  void MakeTables(RunnerOptions& options) {
    Result<KvLayout> layout = KvLayout::Make(model_->plan.kv_layers, options.kv);
    ASSERT_TRUE(layout.has_value()) << layout.error().message;
    const int64_t per_table = (kPositions + options.kv.block_size - 1) / options.kv.block_size;
    for (const KvGroup& group : layout->groups()) {
      options.kv_blocks[static_cast<size_t>(group.pool)] += kSequences * per_table;
    }
    std::vector<std::vector<int32_t>> free;
    for (size_t p = 0; p < layout->pools().size(); ++p) {
      std::vector<int32_t>& ids = free.emplace_back(static_cast<size_t>(options.kv_blocks[p]));
      std::iota(ids.begin(), ids.end(), 0);
      std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
    }
    tables_.assign(kSequences, {});
    for (auto& tables : tables_) {
      for (const KvGroup& group : layout->groups()) {
        std::vector<int32_t>& ids = free[static_cast<size_t>(group.pool)];
        tables.emplace_back(ids.end() - static_cast<std::ptrdiff_t>(per_table), ids.end());
        ids.resize(ids.size() - static_cast<size_t>(per_table));
      }
    }
  }

  Batch NewBatch() const { return Batch(static_cast<int32_t>(tables_[0].size())); }
  void AddSequence(Batch& batch, size_t sequence) const {
    const std::vector<std::span<const int32_t>> tables(tables_[sequence].begin(),
                                                       tables_[sequence].end());
    batch.AddSequence(tables, {});
  }

  void Run(std::span<const int32_t> ids, int64_t first, bool all, Observer* observer = nullptr) {
    Batch batch = NewBatch();
    AddSequence(batch, 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      batch.AddToken(ids[i], first + static_cast<int64_t>(i), Phase::kPrompt,
                     all || i + 1 == ids.size());
    }
    runner_->Run(batch, observer);
  }

  std::span<const float> Expected(const std::string& name) const {
    const TensorEntry* entry = reference_->Find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry == nullptr) return {};
    return {entry->tensor.f32(), static_cast<size_t>(entry->tensor.elements())};
  }

  // Logits of the last token, the prompt in chunks of `chunk`.
  std::vector<float> LastLogits(std::span<const int32_t> ids, size_t chunk) {
    for (size_t i = 0; i < ids.size(); i += chunk) {
      Run(ids.subspan(i, std::min(chunk, ids.size() - i)), static_cast<int64_t>(i), false);
    }
    return {runner_->Logits(0).begin(), runner_->Logits(0).end()};
  }

  // The first prompt, over and over, up to n tokens.
  std::vector<int32_t> LongPrompt(size_t n) const {
    std::vector<int32_t> ids;
    while (ids.size() < n) ids.push_back(prompts_[0].ids[ids.size() % prompts_[0].ids.size()]);
    return ids;
  }

  static float MaxAbs(std::span<const float> x) {
    float most = 0;
    for (const float v : x) most = std::max(most, std::abs(v));
    return most;
  }

  void ExpectClose(std::span<const float> got, std::span<const float> want, float tolerance,
                   const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    float worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
    EXPECT_LE(worst, tolerance) << what;
  }

  int n_threads_batch_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SafetensorsCheckpoint> reference_;
  std::unique_ptr<Runner> runner_;
  Numerics numerics_ = Numerics::kDefault;
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // [sequence][group]
  std::vector<Prompt> prompts_;
};

TEST_P(Fixture, LogitsOfEveryPositionMatch) {
  StartExact();
  for (const auto& [prompt, ids, greedy] : prompts_) {
    const std::span<const float> want = Expected(prompt + ".logits");
    Run(ids, 0, /*all=*/true);
    const size_t vocab = want.size() / ids.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      ExpectClose(runner_->Logits(static_cast<int64_t>(i)), want.subspan(i * vocab, vocab),
                  kLogitTolerance, prompt + " row " + std::to_string(i));
    }
  }
}

TEST_P(Fixture, LogitsMatchWithoutTheFusePass) {
  StartExact(/*fuse=*/false);
  EXPECT_EQ(runner_->plan().ops.size(), model_->plan.ops.size());
  const auto& [prompt, ids, greedy] = prompts_[0];
  const std::span<const float> want = Expected(prompt + ".logits");
  Run(ids, 0, /*all=*/true);
  const size_t vocab = want.size() / ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    ExpectClose(runner_->Logits(static_cast<int64_t>(i)), want.subspan(i * vocab, vocab),
                kLogitTolerance, prompt + " row " + std::to_string(i));
  }
}

TEST_P(Fixture, HiddenStatesMatchLayerByLayer) {
  StartExact();
  HiddenTap tap;
  const auto& [prompt, ids, greedy] = prompts_[0];
  Run(ids, 0, /*all=*/true, &tap);
  const auto check = [&](const std::string& ours, const std::string& theirs) {
    const std::span<const float> want = Expected(prompt + "." + theirs);
    ASSERT_TRUE(tap.taps.contains(ours)) << ours;
    ExpectClose(tap.taps[ours], want, kHiddenTolerance * MaxAbs(want), theirs);
  };
  check("embed", "hidden.embed");
  for (int64_t i = 0; i < model_->config.n_layers; ++i) {
    const std::string n = std::to_string(i);
    check("blk." + n + ".out", "hidden.layer" + n);
  }
  check("output_norm", "hidden.final_norm");
  check("blk.0.attn_output", "layer0.attn_out");
  check(tap.taps.contains("blk.0.ffn_out") ? "blk.0.ffn_out" : "blk.0.ffn_down", "layer0.mlp_out");
  for (int64_t i = 0; i < model_->config.n_layers; ++i) {
    const std::string theirs = prompt + ".router.layer" + std::to_string(i);
    const TensorEntry* experts = reference_->Find(theirs + ".experts");
    if (experts == nullptr) continue;
    const std::string ours = "blk." + std::to_string(i) + ".ffn_gate_inp.route";
    ASSERT_TRUE(tap.taps.contains(ours + ".experts")) << ours;
    const std::vector<float>& chosen = tap.taps[ours + ".experts"];
    const auto* want = reinterpret_cast<const int32_t*>(experts->tensor.data);
    ASSERT_EQ(std::ssize(chosen), experts->tensor.elements());
    for (size_t j = 0; j < chosen.size(); ++j) EXPECT_EQ(chosen[j], want[j]) << theirs << " " << j;
    check(ours + ".weights", "router.layer" + std::to_string(i) + ".weights");
  }
}

TEST_P(Fixture, GreedyContinuationThroughTheCacheMatches) {
  StartExact();
  size_t compared = 0;
  for (const auto& [prompt, ids, want] : prompts_) {
    compared += want.size();
    // The prompt comes in two uneven chunks.
    const size_t cut = ids.size() / 3;
    Run(std::span(ids).first(cut), 0, false);
    Run(std::span(ids).subspan(cut), static_cast<int64_t>(cut), false);
    auto position = static_cast<int64_t>(ids.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const std::span<const float> logits = runner_->Logits(0);
      const auto best =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(best, want[i]) << prompt << " token " << i;
      if (i + 1 < want.size()) Run(std::span(&best, 1), position++, false);
    }
  }
  EXPECT_GE(compared, 16u);
}

TEST_P(Fixture, TheSameBitsForAnyChunkingAndThreadCount) {
  const std::vector<int32_t>& ids = prompts_[0].ids;
  Run(ids, 0, /*all=*/false);
  const std::vector<float> whole(runner_->Logits(0).begin(), runner_->Logits(0).end());
  for (const int n_threads : {1, 2, 3}) {
    StartRunner(n_threads);
    for (const size_t chunk : {size_t{1}, size_t{5}, ids.size()}) {
      for (size_t i = 0; i < ids.size(); i += chunk) {
        Run(std::span(ids).subspan(i, std::min(chunk, ids.size() - i)), static_cast<int64_t>(i),
            false);
      }
      const std::span<const float> again = runner_->Logits(0);
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), again.begin()))
          << n_threads << " threads, chunks of " << chunk;
    }
  }
}

TEST_P(Fixture, TheSameBitsWhereBatchesHaveThreadsOfTheirOwn) {
  const std::vector<int32_t> ids = LongPrompt(40);
  const std::vector<float> expected = LastLogits(ids, 39);
  for (const auto& [one, several] : {std::pair<int, int>{1, 3}, {3, 1}}) {
    n_threads_batch_ = several;
    StartRunner(one);
    EXPECT_EQ(runner_->n_threads(), one);
    EXPECT_EQ(runner_->n_threads(2), several);
    EXPECT_EQ(runner_->pool().size(), 3);
    EXPECT_EQ(LastLogits(ids, 39), expected) << one << " and " << several << " threads";
  }
}

TEST_P(Fixture, TheSameBitsAloneAndBesideOtherSequences) {
  const std::vector<int32_t>& ids = prompts_[0].ids;
  Run(ids, 0, /*all=*/false);
  const std::vector<float> alone(runner_->Logits(0).begin(), runner_->Logits(0).end());
  Batch batch = NewBatch();
  AddSequence(batch, 1);
  for (size_t i = 0; i < ids.size() / 2; ++i)
    batch.AddToken(ids[ids.size() - 1 - i], static_cast<int64_t>(i), Phase::kPrompt, i == 0);
  AddSequence(batch, 0);
  for (size_t i = 0; i < ids.size(); ++i)
    batch.AddToken(ids[i], static_cast<int64_t>(i), Phase::kPrompt, i + 1 == ids.size());
  runner_->Run(batch);
  const std::span<const float> beside = runner_->Logits(1);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), beside.begin()));
}

TEST_P(Fixture, TheSameBitsForAnyBlockSize) {
  const std::vector<int32_t> ids = LongPrompt(70);
  for (const KvType type : {KvType::kF32, KvType::kInt8}) {
    StartRunner(2, true, type, 16);
    const std::vector<float> want = LastLogits(ids, 32);
    for (const int64_t block_size : {8, 64}) {
      StartRunner(2, true, type, block_size);
      EXPECT_EQ(LastLogits(ids, 32), want) << Name(type) << " in blocks of " << block_size;
    }
  }
}

class CacheTypes : public Fixture {};

TEST_P(CacheTypes, GiveTheSameBitsForAnyChunkingAndThreadCount) {
  const std::vector<int32_t> ids = LongPrompt(180);  // kivi2 packs from 128 positions on
  for (const KvType type : AllKvTypes()) {
    StartRunner(2, true, type);
    const std::vector<float> whole = LastLogits(ids, ids.size());
    for (const auto& [n_threads, chunk] : {std::pair<int, size_t>{1, 1}, {3, 50}}) {
      StartRunner(n_threads, true, type);
      EXPECT_EQ(LastLogits(ids, chunk), whole)
          << Name(type) << ", " << n_threads << " threads, chunks of " << chunk;
    }
  }
}

// The weights are random, so attention is sharp and errors of keys weigh more than in a trained
// model.
TEST_P(Fixture, CacheTypesAreAsNearAsTheirBitsAllow) {
  if (model_->config.moe.n_experts > 0) GTEST_SKIP() << "a little noise chooses other experts";
  numerics_ = Numerics::kFloat;  // else prompts may meet a cache of 16 bits in bfloat16
  const std::vector<int32_t> ids = LongPrompt(100);
  StartRunner(2, true, KvType::kF32);
  const std::vector<float> exact = LastLogits(ids, ids.size());
  StartRunner(2, true, KvType::kF16);
  const std::vector<float> half = LastLogits(ids, ids.size());
  const auto distance = [&](KvType type) {
    StartRunner(2, true, type);
    const std::vector<float> logits = LastLogits(ids, ids.size());
    double sum = 0, norm = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      sum += std::pow(logits[i] - exact[i], 2.0);
      norm += std::pow(exact[i], 2.0);
    }
    return std::sqrt(sum / norm);
  };
  EXPECT_LT(distance(KvType::kF16), 1e-3);
  EXPECT_LT(distance(KvType::kBF16), 1e-2);
  EXPECT_LT(distance(KvType::kInt8), 2.5e-2);
  EXPECT_LT(distance(KvType::kFp8), 0.15);
  EXPECT_LT(distance(KvType::kInt4), 0.35);
  StartRunner(2, true, KvType::kKivi2);
  EXPECT_EQ(LastLogits(ids, ids.size()), half) << "nothing is older than the residual window";
}

TEST_P(Fixture, KeyRotationsAreThoseOfThePlan) {
  for (const Plan& plan : {model_->plan, runner_->plan()}) {
    const std::vector<KeyRotation> rotations = KeyRotations(plan, model_->weights);
    ASSERT_EQ(rotations.size(), model_->plan.kv_layers.size());
    for (size_t i = 0; i < rotations.size(); ++i) {
      if (model_->config.mla.kv_lora > 0) {
        EXPECT_TRUE(rotations[i].inv_freq.empty()) << "no policy moves latent keys";
        continue;
      }
      EXPECT_EQ(static_cast<int64_t>(rotations[i].inv_freq.size()),
                model_->config.layers[i].rope.rotary_dim / 2);
      float first = 1.0f;  // divided by the factor of linear scaling
      if (GetParam().model.ends_with("_linear")) first = 0.25f;
      if (GetParam().model.ends_with("_scaled") && model_->plan.kv_layers[i].window == 0) {
        first = 0.125f;
      }
      EXPECT_EQ(rotations[i].inv_freq[0], first) << "layer " << i;
    }
  }
}

// Models with latent attention.
class Latent : public Fixture {
 protected:
  // Logits of every token; those from `first_generated` on are generated, one a step.
  std::vector<float> Logits(std::span<const int32_t> ids, size_t first_generated) {
    std::vector<float> logits;
    const auto keep = [&] {
      for (int64_t i = 0; i < n_outputs_; ++i) {
        logits.insert(logits.end(), runner_->Logits(i).begin(), runner_->Logits(i).end());
      }
    };
    if (first_generated > 0) {
      Run(ids.first(first_generated), 0, /*all=*/true);
      n_outputs_ = static_cast<int64_t>(first_generated);
      keep();
    }
    n_outputs_ = 1;
    for (size_t i = first_generated; i < ids.size(); ++i) {
      Batch batch = NewBatch();
      AddSequence(batch, 0);
      batch.AddToken(ids[i], static_cast<int64_t>(i), Phase::kGenerated, true);
      runner_->Run(batch);
      keep();
    }
    return logits;
  }
  int64_t n_outputs_ = 0;
};

TEST_P(Latent, ExpandedAndAbsorbedFormsAgree) {
  StartExact();
  const std::vector<int32_t> ids = prompts_[1].ids;
  const std::vector<float> expanded = Logits(ids, ids.size());
  for (const size_t first : {size_t{0}, ids.size() / 2}) {
    ExpectClose(Logits(ids, first), expanded, 2e-4f, "from " + std::to_string(first));
  }
}

// A step with given and generated tokens of several sequences, and the same tokens in steps of
// their own.
TEST_P(Latent, TheSameBitsInAStepOfBothForms) {
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    StartRunner(2, true, type);
    const std::vector<int32_t> ids = LongPrompt(60);
    const std::vector<float> want = Logits(ids, 40);
    StartRunner(3, true, type);
    Run(std::span(ids).first(17), 0, false);
    Batch batch = NewBatch();
    AddSequence(batch, 1);
    for (size_t i = 0; i < 9; ++i) {
      batch.AddToken(ids[i + 3], static_cast<int64_t>(i), Phase::kPrompt, false);
    }
    AddSequence(batch, 0);
    for (size_t i = 17; i < ids.size(); ++i) {
      batch.AddToken(ids[i], static_cast<int64_t>(i), i < 40 ? Phase::kPrompt : Phase::kGenerated,
                     true);
    }
    runner_->Run(batch);
    const size_t vocab = want.size() / ids.size();
    for (size_t i = 17; i < ids.size(); ++i) {
      const std::span<const float> got = runner_->Logits(static_cast<int64_t>(i) - 17);
      EXPECT_TRUE(
          std::equal(got.begin(), got.end(), want.begin() + static_cast<std::ptrdiff_t>(i * vocab)))
          << Name(type) << " token " << i;
    }
  }
}

TEST_P(Latent, TheCacheKeepsLatentVectorsOnly) {
  const MlaConfig& mla = model_->config.mla;
  StartRunner(2, true, KvType::kBF16);
  EXPECT_EQ(runner_->kv().layout().BytesPerToken(),
            model_->config.n_layers * 2 * (mla.kv_lora + mla.rope));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Latent, testing::ValuesIn(Cases({"models/deepseek_v2_lite", "models/deepseek_v3"})),
    [](const testing::TestParamInfo<Case>& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, Fixture, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });
// Longer runs, with one model whose layers are alike and one with windows.
INSTANTIATE_TEST_SUITE_P(Models, CacheTypes,
                         testing::ValuesIn(Cases({"models/qwen2", "models/gemma3_text"})),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace lucid
