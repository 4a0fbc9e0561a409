// Files that lack a tensor, have it in another shape, or have one more: of every reference model,
// each tensor is taken away and reshaped by itself, and the loader must name it.
#include "models/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "format/gguf.h"
#include "models/load.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/";

// A Hugging Face checkpoint with other tensors.
class Changed final : public Checkpoint {
 public:
  explicit Changed(std::vector<TensorEntry> tensors) : tensors_(std::move(tensors)) {}
  Format format() const override { return Format::kSafetensors; }
  std::span<const TensorEntry> tensors() const override { return tensors_; }
  const TensorEntry* Find(std::string_view name) const override {
    const auto found = std::ranges::find(tensors_, name, &TensorEntry::name);
    return found == tensors_.end() ? nullptr : &*found;
  }
  std::span<const std::string> files() const override { return {}; }
  uint64_t file_bytes() const override { return 0; }

 private:
  std::vector<TensorEntry> tensors_;
};

// The model that loading makes of the checkpoint's keys and these tensors: the config is read with
// them, as it is of a file that has no others.
Result<Weights> LoadWith(const Model& model, std::vector<TensorEntry> tensors) {
  if (model.checkpoint->format() == Checkpoint::Format::kSafetensors) {
    const Changed file(std::move(tensors));
    return Weights::Load(model.plan, *model.arch, model.config, file, Contents::kNone);
  }
  const auto metadata = static_cast<const GgufFile&>(*model.checkpoint).metadata();
  LUCID_ASSIGN_OR_RETURN(const auto file, GgufFile::Outline({metadata.begin(), metadata.end()},
                                                            std::move(tensors), "changed"));
  LUCID_ASSIGN_OR_RETURN(const ArchAndConfig read, ReadModelConfig(*file));
  const Plan plan = BuildPlan(*read.arch, read.config);
  return Weights::Load(plan, *read.arch, read.config, *file, Contents::kNone);
}

std::vector<TensorEntry> TensorsOf(const Model& model) {
  return {model.checkpoint->tensors().begin(), model.checkpoint->tensors().end()};
}

// Every reference model in both formats.
std::vector<std::string> Models() {
  std::vector<std::string> paths;
  for (const char* folder : {"models", "gguf/models"}) {
    if (!fs::exists(kFixtures + folder)) continue;
    for (const auto& entry : fs::directory_iterator(kFixtures + folder)) {
      const fs::path& path = entry.path();
      if (fs::is_directory(path) || path.extension() == ".gguf") paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class WeightsOf : public testing::TestWithParam<std::string> {};

TEST_P(WeightsOf, AMissingOrMisshapenTensorIsNamed) {
  const Result<Model> model = LoadModel(GetParam());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  std::set<std::string> passed_over;
  for (const SpareTensor& spare : model->weights.passed_over()) passed_over.insert(spare.name);
  const std::vector<TensorEntry> tensors = TensorsOf(*model);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    std::vector<TensorEntry> fewer = tensors;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    // The rows of these say how many tokens and positions a GGUF file's model knows.
    std::vector<TensorEntry> misshapen = tensors;
    Tensor& tensor = misshapen[i].tensor;
    const bool counts = name == "token_embd.weight" || name == "position_embd.weight";
    --tensor.shape[counts ? static_cast<size_t>(tensor.rank) - 1 : 0];
    if (passed_over.contains(name)) {
      EXPECT_TRUE(LoadWith(*model, fewer).has_value()) << name;
      continue;
    }
    // Of GGUF files alone: no key says that the embedding is not the output matrix as well, or that
    // there are bands.
    const bool of_gguf = model->checkpoint->format() == Checkpoint::Format::kGguf;
    const bool optional = of_gguf && (name == "output.weight" || name == "rope_freqs.weight");
    const Result<Weights> without = LoadWith(*model, fewer);
    EXPECT_EQ(without.has_value(), optional) << name;
    if (!without) {
      EXPECT_NE(without.error().message.find(name), std::string::npos)
          << name << ": " << without.error().message;
    }
    const Result<Weights> other = LoadWith(*model, misshapen);
    ASSERT_FALSE(other.has_value()) << name;
    EXPECT_NE(other.error().message.find(name), std::string::npos)
        << name << ": " << other.error().message;
  }
}

TEST_P(WeightsOf, ATensorThatNothingReadsIsNamed) {
  const Result<Model> model = LoadModel(GetParam());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const bool of_gguf = model->checkpoint->format() == Checkpoint::Format::kGguf;
  const auto added = [&](const std::string& name, std::initializer_list<int64_t> shape) {
    std::vector<TensorEntry> tensors = TensorsOf(*model);
    TensorEntry entry = tensors.front();
    entry.name = name;
    entry.tensor.rank = static_cast<int>(shape.size());
    std::ranges::copy(shape, entry.tensor.shape.begin());
    tensors.push_back(std::move(entry));
    return LoadWith(*model, std::move(tensors));
  };
  const std::string behind = std::to_string(model->config.n_layers);
  const std::vector<std::string> unread =
      of_gguf ? std::vector<std::string>{"blk.0.attn_x.weight", "blk." + behind + ".attn_x.weight"}
              : std::vector<std::string>{"model.layers.0.self_attn.x.bias",
                                         "model.layers." + behind + ".x.weight"};
  for (const std::string& name : unread) {
    const Result<Weights> loaded = added(name, {8});
    ASSERT_FALSE(loaded.has_value()) << name;
    EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(loaded.error().message.find("tensor " + name + " is in the file"), std::string::npos)
        << loaded.error().message;
  }
  if (of_gguf) return;
  // What earlier versions stored beside weights.
  for (const std::string name : {"model.layers.0.self_attn.rotary_emb.inv_freq", "h.0.attn.bias"}) {
    const Result<Weights> loaded = added(name, {1, 1, 8, 8});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    EXPECT_EQ(loaded->passed_over().back().name, name);
  }
  EXPECT_FALSE(added("h.0.attn.bias", {8}).has_value()) << "a bias, no mask";
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WeightsOf);
INSTANTIATE_TEST_SUITE_P(Models, WeightsOf, testing::ValuesIn(Models()), [](const auto& test) {
  std::string name = fs::path(test.param).filename();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.'; }, '_');
  return name;
});

}  // namespace
}  // namespace lucid
