// The reference models, and the fixture that runs one of them, for the tests of the executors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "exec/key_rotation.h"
#include "exec/runner.h"
#include "format/safetensors.h"

namespace lucid::testing_util {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // the short prompt comes first, as written

inline const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures";

// Tolerances of the fixtures' README.
constexpr float kLogitTolerance = 1e-3f;
constexpr float kHiddenTolerance = 1e-4f;  // of the tensor's largest value
constexpr double kNllTolerance = 1e-4;

struct Case {
  std::string name;       // for the test's name
  std::string model;      // path under fixtures/
  std::string reference;  // path under fixtures/ without extension
  std::string isa;        // "reference" or an instruction set
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " on " << c.isa;
}

// A prompt of a reference file, whichever of its two layouts it has.
struct Prompt {
  std::string tag;  // prefix of its tensors
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;  // up to the first step where two tokens are close
  double mean_nll = -1;         // of tokens 1 .. n - 1, where it is given
};

inline std::vector<Prompt> ReadPrompts(const Json& reference) {
  std::vector<Prompt> prompts;
  const Json& list = reference["prompts"];
  for (const auto& [key, facts] : list.items()) {
    Prompt p{.tag = list.is_array() ? "prompt" + key : key,
             .ids = facts["ids"].get<std::vector<int32_t>>(),
             .greedy = {},
             .mean_nll = facts.value("mean_nll", -1.0)};
    if (facts.contains("greedy")) p.greedy = facts["greedy"]["ids"].get<std::vector<int32_t>>();
    if (facts.contains("greedy_ids")) {
      p.greedy = facts["greedy_ids"].get<std::vector<int32_t>>();
      p.greedy.resize(std::min(p.greedy.size(), facts["sure_prefix"].get<size_t>()));
    }
    prompts.push_back(std::move(p));
  }
  return prompts;
}

inline bool Exists(const std::string& path) {
  return fs::exists(kFixtures + "/" + path);
}

// The architecture of a folder of fixtures, or nullptr if this build does not have it.
inline const ArchSpec* ArchOf(const std::string& folder) {
  const Json config = Json::parse(std::ifstream(kFixtures + "/" + folder + "/config.json"));
  const auto found = FindArchByHf(config["architectures"][0].get<std::string>());
  return found ? *found : nullptr;
}

// Every reference model of an architecture that this build has: its path, and its reference's.
inline std::vector<std::pair<std::string, std::string>> ReferenceModels() {
  std::vector<std::pair<std::string, std::string>> models;
  for (const char* folder : {"models", "trained"}) {
    if (!Exists(folder)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(kFixtures + "/" + folder)) {
      const std::string name = entry.path().filename();
      const std::string path = std::string(folder) + "/" + name;
      if (!Exists(path + "/config.json") || ArchOf(path) == nullptr) continue;
      models.emplace_back(path, path + "/reference");
      const std::string twin = "gguf/models/" + name + ".gguf";
      if (Exists(twin)) models.emplace_back(twin, path + "/reference");
    }
  }
  std::sort(models.begin(), models.end());
  return models;
}

// On every instruction set of this machine; of the models in `only` where it names any.
inline std::vector<Case> Cases(const std::vector<std::string>& only = {}) {
  std::vector<std::string> isas = {"reference"};
  if (const auto tables = SelectTables(""); tables) {
    for (const KernelTable* table : *tables) {
      if (table->isa != "reference") isas.emplace_back(table->isa);
    }
  }
  std::vector<Case> cases;
  for (const auto& [model, reference] : ReferenceModels()) {
    if (!only.empty() && std::find(only.begin(), only.end(), model) == only.end()) continue;
    for (const std::string& isa : isas) {
      std::string name = fs::path(model).filename().string() + "_" + isa;
      std::replace(name.begin(), name.end(), '.', '_');
      cases.push_back({name, model, reference, isa});
    }
  }
  return cases;
}

// How long the sequence is that decides a token's rotation: transformers takes the longest position
// of a call, which is the prompt's end for its tokens and each new token's own afterwards; LongRoPE
// models start over when they cross the border, so that the whole sequence has one.
inline int32_t RopeLength(const ModelConfig& c, int64_t position, size_t prompt, size_t whole) {
  const auto scaling = c.layers.back().rope.scaling;
  if (scaling == RopeSpec::Scaling::kLongRope) return static_cast<int32_t>(whole);
  return static_cast<int32_t>(std::max<int64_t>(position + 1, static_cast<int64_t>(prompt)));
}

// -log of the probability that these logits give to a token.
inline double NegativeLogLikelihood(std::span<const float> logits, int32_t id) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float v : logits) total += std::exp(static_cast<double>(v) - max);
  return std::log(total) + max - logits[static_cast<size_t>(id)];
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
    Result<Model> model = LoadModel(kFixtures + "/" + GetParam().model);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::make_unique<Model>(*std::move(model));
    auto reference =
        SafetensorsCheckpoint::Open(kFixtures + "/" + GetParam().reference + ".safetensors");
    ASSERT_TRUE(reference.has_value()) << reference.error().message;
    reference_ = *std::move(reference);
    facts_ = Json::parse(std::ifstream(kFixtures + "/" + GetParam().reference + ".json"));
    prompts_ = ReadPrompts(facts_);

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

  // Tokens of a sequence whose prompt has `prompt_` of them and which may grow by `new_tokens_`.
  void AddToken(Batch& batch, int32_t id, int64_t position, bool wants_output) const {
    batch.AddToken(id, position, Phase::kPrompt, wants_output,
                   RopeLength(model_->config, position, prompt_, prompt_ + new_tokens_));
  }
  void Run(std::span<const int32_t> ids, int64_t first, bool all, Observer* observer = nullptr) {
    Batch batch = NewBatch();
    AddSequence(batch, 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      AddToken(batch, ids[i], first + static_cast<int64_t>(i), all || i + 1 == ids.size());
    }
    runner_->Run(batch, observer);
  }
  void SetPrompt(size_t n, size_t new_tokens = 0) {
    prompt_ = n;
    new_tokens_ = new_tokens;
  }

  std::span<const float> Expected(const std::string& name) const {
    const TensorEntry* entry = reference_->Find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry == nullptr) return {};
    return {entry->tensor.f32(), static_cast<size_t>(entry->tensor.elements())};
  }

  // Logits of the last token, the prompt in chunks of `chunk`.
  std::vector<float> LastLogits(std::span<const int32_t> ids, size_t chunk) {
    SetPrompt(ids.size());
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
  size_t prompt_ = 0, new_tokens_ = 0;
  Json facts_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SafetensorsCheckpoint> reference_;
  std::unique_ptr<Runner> runner_;
  Numerics numerics_ = Numerics::kDefault;
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // [sequence][group]
  std::vector<Prompt> prompts_;
};

}  // namespace lucid::testing_util
