#include "store/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "store/catalogue.h"
#include "store/file_util.h"
#include "store/model_index.h"
#include "store/pack_cache.h"
#include "store/pull.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "lucid_store_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    home_ = folder;
    setenv("LUCID_HOME", home_.c_str(), 1);
    setenv("LUCID_OFFLINE", "1", 1);
  }
  void TearDown() override {
    unsetenv("LUCID_HOME");
    unsetenv("LUCID_OFFLINE");
    fs::remove_all(home_);
  }

  // A stored model with a file of its own.
  StoredModel Store(const std::string& name) {
    const std::string folder = ModelFolder(name);
    fs::create_directories(folder);
    StoredModel model = {name, folder + "/m.gguf", "hf:a/" + name, std::string(64, '0'), 4, "2026"};
    std::ofstream(model.path) << "GGUF";
    EXPECT_TRUE(PutInModelIndex(model));
    return model;
  }

  std::string home_;
};

TEST_F(ModelStoreTest, AnEmptyStoreListsNothing) {
  const auto models = ListModels();
  ASSERT_TRUE(models);
  EXPECT_TRUE(models->empty());
}

TEST_F(ModelStoreTest, ResolvesPathsThenNames) {
  const StoredModel model = Store("tiny");
  EXPECT_EQ(*ResolveModel("tiny"), model.path);
  EXPECT_EQ(*ResolveModel(model.path), model.path);
  EXPECT_EQ(*ResolveModel(home_), home_);
  fs::remove(model.path);
  EXPECT_THAT(ResolveModel("tiny").error().message, HasSubstr("lucid pull hf:a/tiny"));
}

TEST_F(ModelStoreTest, TellsHowToGetAKnownName) {
  const auto built_in = ResolveModel("smollm2");
  ASSERT_FALSE(built_in);
  EXPECT_EQ(built_in.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(built_in.error().message, HasSubstr("lucid pull smollm2"));
  EXPECT_THAT(ResolveModel("hf:a/b").error().message, HasSubstr("lucid pull hf:a/b"));
  EXPECT_THAT(ResolveModel("nonsense").error().message, HasSubstr("lucid models"));
  EXPECT_FALSE(ResolveModel("").has_value());
}

TEST_F(ModelStoreTest, RemovesFilesAndEntry) {
  const StoredModel model = Store("hf:a/b:Q8_0");
  Store("other");
  const std::string packed = PackCacheFile(PackCacheFolder(), model.path);
  fs::create_directories(PackCacheFolder());
  std::ofstream(packed) << "packed";
  EXPECT_TRUE(RemoveModel("hf:a/b:Q8_0"));
  EXPECT_FALSE(fs::exists(model.path));
  EXPECT_FALSE(fs::exists(packed));
  EXPECT_EQ(ListModels()->size(), 1u);
  EXPECT_EQ(RemoveModel("hf:a/b:Q8_0").error().code, ErrorCode::kNotFound);
}

TEST_F(ModelStoreTest, NoNameLeadsOutOfTheStore) {
  for (const char* name : {"..", ".", "../x", "a/../b", "/etc", "hf:a/b", "x\ny", ""}) {
    const fs::path folder = ModelFolder(name);
    EXPECT_EQ(folder.lexically_normal().parent_path(),
              fs::path(ModelStoreFolder()).lexically_normal())
        << name;
  }
  EXPECT_NE(ModelFolder("a/b"), ModelFolder("a%2Fb"));
}

TEST_F(ModelStoreTest, ADamagedIndexIsNamed) {
  fs::create_directories(ModelStoreFolder());
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const char* text : {deep.c_str(), "", "{", "[]", "{\"version\":9,\"models\":[]}",
                           "{\"version\":1,\"models\":[{\"name\":1}]}",
                           "{\"version\":1,\"models\":[{\"name\":\"x\"}]}"}) {
    std::ofstream(ModelStoreFolder() + "/index.json") << text;
    const auto models = ListModels();
    ASSERT_FALSE(models) << text;
    EXPECT_EQ(models.error().code, ErrorCode::kInvalidFile);
    EXPECT_THAT(models.error().message, HasSubstr("index.json is damaged"));
  }
}

TEST_F(ModelStoreTest, ConcurrentChangesLoseNoEntry) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 5; ++i) {
        const std::string name = fmt::format("m{}-{}", t, i);
        EXPECT_TRUE(PutInModelIndex({name, "/p", "s", "", 1, "t"}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ListModels()->size(), 20u);
}

TEST_F(ModelStoreTest, OfflinePullsOnlyWhatIsThere) {
  Store("present");
  StoredModel model = Store("hf:a/b");
  model.source = "hf:a/b";
  ASSERT_TRUE(PutInModelIndex(model));
  const auto there = PullModel("hf:a/b", {});
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_TRUE(there->was_there);
  const auto absent = PullModel("smollm2", {});
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("offline"));
}

TEST_F(ModelStoreTest, PullRefusesWhatItCannotName) {
  EXPECT_FALSE(PullModel("nonsense", {}).has_value());
  EXPECT_FALSE(PullModel("http://127.0.0.1/", {}).has_value());
  EXPECT_FALSE(PullModel("http://127.0.0.1/a/..", {}).has_value());
  EXPECT_FALSE(PullModel("hf:a", {}).has_value());
  PullOptions options;
  options.sha256 = "abc";
  EXPECT_THAT(PullModel("smollm2", options).error().message, HasSubstr("64 hex digits"));
  Store("taken");
  options = {};
  options.name = "taken";
  EXPECT_THAT(PullModel("smollm2", options).error().message, HasSubstr("taken by a model from"));
}

TEST(Sha256Test, MatchesThePublishedVectors) {
  const std::string path = (fs::temp_directory_path() / "lucid_sha256_test").string();
  std::ofstream(path) << "abc";
  EXPECT_EQ(*Sha256OfFile(path),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(*Sha256OfFile(path),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  fs::remove(path);
  EXPECT_EQ(Sha256OfFile(path).error().code, ErrorCode::kNotFound);
}

TEST(CatalogueTest, RowsAreComplete) {
  for (const CatalogueModel& model : Catalogue()) {
    EXPECT_EQ(FindCatalogueModel(model.name), &model);
    EXPECT_TRUE(IsSha256(std::string(model.sha256)));
    EXPECT_GT(model.bytes, 0u);
    EXPECT_EQ(model.requirements.size(), model.members.size());
    EXPECT_FALSE(model.terms.empty());
    for (const std::string_view requirement : model.requirements) {
      EXPECT_NE(requirement.find("=="), std::string_view::npos) << "unpinned " << requirement;
    }
  }
}

}  // namespace
}  // namespace lucid
