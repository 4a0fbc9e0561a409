// What is foreseen against what is allocated, to the byte.
#include "engine/footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "engine/engine.h"
#include "models/outline.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> FixtureModels() {
  std::vector<std::string> paths;
  for (const char* folder : {"/fixtures/models", "/fixtures/gguf/models"}) {
    std::error_code error;
    for (fs::directory_iterator it(std::string(LUCID_SHARED_DIR) + folder, error), end;
         !error && it != end; it.increment(error)) {
      paths.push_back(it->path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

EngineConfig Config(const std::string& path, int64_t context, int32_t sequences, KvType kv) {
  EngineConfig config;
  config.model = path;
  config.context = context;
  config.n_parallel = sequences;
  config.cache_type_k = config.cache_type_v = kv;
  config.n_threads = 2;
  config.batch = 64;
  return config;
}

// Loads the engine, and compares every part and the sum of all buffers; false if the model cannot
// have that cache, which both must say in the same words.
bool ExpectForeseen(const EngineConfig& config) {
  const std::string what =
      fmt::format("{} context {} sequences {} kv {} numerics {}", config.model, config.context,
                  config.n_parallel, Name(config.cache_type_k), Name(config.numerics));
  const Result<Model> model = LoadModel(config.model, config.rope, Contents::kNone);
  if (!model) return false;  // what only other programs read
  const Result<Footprint> foreseen = ForeseeEngine(*model, config, /*available=*/0);
  const int64_t before = Buffer::LiveBytes();
  const Result<std::unique_ptr<Engine>> engine = Engine::Load(config);
  EXPECT_EQ(foreseen.has_value(), engine.has_value()) << what;
  if (!foreseen || !engine) {
    if (foreseen || engine) return false;
    EXPECT_EQ(foreseen.error().message, engine.error().message) << what;
    return false;
  }
  const RunnerBytes taken = (*engine)->runner().bytes();
  EXPECT_EQ(foreseen->runner.packed, taken.packed) << what;
  EXPECT_EQ(foreseen->runner.arena, taken.arena) << what;
  EXPECT_EQ(foreseen->runner.kv, taken.kv) << what;
  EXPECT_EQ(foreseen->runner.scratch, taken.scratch) << what;
  EXPECT_EQ(foreseen->weight_copies, (*engine)->model().weights.owned_bytes()) << what;
  EXPECT_EQ(foreseen->total(), Buffer::LiveBytes() - before) << what;
  return true;
}

TEST(ForeseeEngine, EqualsTheAllocatorOnAGridOfModelsContextsBatchesAndCaches) {
  const std::vector<std::string> models = FixtureModels();
  if (models.empty()) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  int compared = 0;
  for (const std::string& path : models) {
    for (const KvType kv : AllKvTypes()) {
      for (const int64_t context : {int64_t{33}, int64_t{48}}) {
        for (const int32_t sequences : {1, 5}) {
          if (ExpectForeseen(Config(path, context, sequences, kv))) ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 800);
}

TEST(ForeseeEngine, EqualsTheAllocatorForEveryBackendAndNumerics) {
  const std::string path = std::string(LUCID_SHARED_DIR) + "/fixtures/gguf/models";
  if (!fs::exists(path)) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    EngineConfig config = Config(entry.path().string(), 64, 3, KvType::kF16);
    for (const Numerics numerics : {Numerics::kDefault, Numerics::kFast, Numerics::kFloat}) {
      config.numerics = numerics;
      ExpectForeseen(config);
    }
    config.numerics = Numerics::kDefault;
    config.n_threads = 1;
    config.n_threads_batch = 2;
    ExpectForeseen(config);
    config.backend = BackendKind::kReference;
    ExpectForeseen(config);
  }
}

// A config alone says as much as the folder that it came with, where that stores matrices as they
// are used: only vectors are copied, to float32.
TEST(ForeseeEngine, AnOutlineIsAsLargeAsTheModel) {
  const std::string folder = std::string(LUCID_SHARED_DIR) + "/fixtures/models/llama3_gqa";
  if (!fs::exists(folder)) GTEST_SKIP() << "no fixtures in " << LUCID_SHARED_DIR;
  const EngineConfig config = Config(folder, 48, 2, KvType::kInt8);
  const Model model = LoadModel(folder, {}, Contents::kNone).value();
  const Model outline = OutlineModel(folder + "/config.json", "").value();
  for (const Value v : model.plan.Weights()) {
    EXPECT_EQ(outline.weights[v].dtype, model.weights[v].dtype) << model.plan.Info(v).name;
  }
  const Footprint of_model = ForeseeEngine(model, config, 0).value();
  const Footprint of_outline = ForeseeEngine(outline, config, 0).value();
  EXPECT_EQ(of_outline.runner.total(), of_model.runner.total());
}

// Models far larger than this machine's memory.
TEST(ForeseeEngine, NeedsNoMemoryOfTheModelsSize) {
  for (const char* name : {"llama-3-70b", "deepseek-v3"}) {
    const std::string path =
        std::string(LUCID_SOURCE_DIR) + "/tests/data/configs/" + name + ".json";
    const Model model = OutlineModel(path, "q4_k_m").value();
    const Footprint footprint =
        ForeseeEngine(model, Config(path, 8192, 4, KvType::kF16), 0).value();
    EXPECT_GT(footprint.runner.packed, int64_t{35} << 30) << name;
  }
}

TEST(ForeseeEngine, ContextsOutOfRangeAreNamed) {
  ModelConfig model;
  model.context_length = 100;
  EngineConfig config;
  EXPECT_EQ(ContextOf(model, config).value(), 100);
  config.context = -1;
  EXPECT_EQ(ContextOf(model, config).error().message,
            "a context of -1 is out of range, which is 1 to 1073741824");
  model.position_rows = 64;
  config.context = 65;
  EXPECT_EQ(ContextOf(model, config).error().message,
            "a context of 65 is longer than the 64 positions that the model has learned");
}

}  // namespace
}  // namespace lucid
