// Files that lack a tensor or have it in another shape: of every reference model, each tensor is
// taken away and reshaped by itself, and the loader must name it.
#include "models/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "models/load.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
const std::string kFixtures = std::string(LUCID_SHARED_DIR) + "/fixtures/";

// Another checkpoint, but for one tensor.
class Changed final : public Checkpoint {
 public:
  enum class How { kMissing, kFewerRows };

  Changed(const Checkpoint& file, const TensorEntry& entry, How how)
      : file_(file), entry_(entry), how_(how) {
    if (how == How::kFewerRows) --entry_.tensor.shape[0];
  }
  Format format() const override { return file_.format(); }
  std::span<const TensorEntry> tensors() const override { return file_.tensors(); }
  const TensorEntry* Find(std::string_view name) const override {
    if (name != entry_.name) return file_.Find(name);
    return how_ == How::kMissing ? nullptr : &entry_;
  }
  std::span<const std::string> files() const override { return file_.files(); }
  uint64_t file_bytes() const override { return file_.file_bytes(); }

 private:
  const Checkpoint& file_;
  TensorEntry entry_;
  How how_;
};

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
  std::set<std::string> unused;
  for (const TensorEntry& entry : model->checkpoint->tensors()) {
    for (const Changed::How how : {Changed::How::kMissing, Changed::How::kFewerRows}) {
      const Changed file(*model->checkpoint, entry, how);
      const auto loaded = Weights::Load(model->plan, *model->arch, model->config, file);
      if (loaded) {
        unused.insert(entry.name);
        continue;
      }
      EXPECT_NE(loaded.error().message.find(entry.name), std::string::npos)
          << entry.name << ": " << loaded.error().message;
      EXPECT_FALSE(unused.contains(entry.name))
          << entry.name << " may be missing, but not misshapen";
    }
  }
  // What a file may have beside weights: masks that older versions stored, an output matrix that is
  // the embedding, layers that predict further tokens.
  for (const std::string& name : unused) {
    EXPECT_TRUE(name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
                name == "lm_head.weight")
        << name << " of " << GetParam() << " is not read";
  }
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
