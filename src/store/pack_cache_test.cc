#include "store/pack_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lucid {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PackCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "lucid_pack_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    home_ = folder;
  }
  void TearDown() override {
    unsetenv("LUCID_PACK_GB");
    fs::remove_all(home_);
  }
  // A file of that many bytes, last used `age` seconds ago.
  std::string Put(const std::string& name, size_t bytes, int age = 0) const {
    const std::string path = home_ + "/" + name;
    std::ofstream(path) << std::string(bytes, 'x');
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(age));
    return path;
  }
  std::vector<std::string> Listed() const {
    std::vector<std::string> names;
    for (const PackCacheEntry& e : ListPackCache(home_))
      names.push_back(fs::path(e.path).filename());
    return names;
  }

  std::string home_;
};

TEST_F(PackCacheTest, AModelHasOneFileHoweverItsPathIsSpelled) {
  const std::string model = Put("m.gguf", 1);
  const std::string file = PackCacheFile("/cache", model);
  EXPECT_THAT(file, ::testing::MatchesRegex("/cache/m.gguf-[0-9a-f]*.pack"));
  EXPECT_EQ(PackCacheFile("/cache", home_ + "/./x/../m.gguf"), file);
  fs::create_symlink(model, home_ + "/link");
  EXPECT_EQ(PackCacheFile("/cache", home_ + "/link"), file);
  fs::create_directory(home_ + "/folder");
  EXPECT_EQ(PackCacheFile("/cache", home_ + "/folder/"),
            PackCacheFile("/cache", home_ + "/folder"));
  fs::create_directory(home_ + "/other");
  EXPECT_NE(PackCacheFile("/cache", home_ + "/other/m.gguf"), file);
}

TEST_F(PackCacheTest, AFileBesideTheModelIsFoundIfItsOwnerCouldHaveWrittenTheModel) {
  const std::string model = Put("m.gguf", 1);
  EXPECT_EQ(PackFileBeside(model), "");
  const std::string beside = Put("m.gguf.pack", 1);
  EXPECT_EQ(PackFileBeside(model), beside);
  if (::geteuid() != 0) return;  // only root gives files away
  ASSERT_EQ(::chown(beside.c_str(), 12345, 12345), 0);
  EXPECT_EQ(PackFileBeside(model), "");
  ASSERT_EQ(::chown(model.c_str(), 12345, 12345), 0);
  EXPECT_EQ(PackFileBeside(model), beside);
}

TEST_F(PackCacheTest, ListsPacksTheLastUsedFirst) {
  Put("old.pack", 10, 300);
  const std::string middle = Put("middle.pack", 20, 200);
  Put("new.pack.part", 30, 100);
  Put("something else", 40);
  EXPECT_THAT(Listed(), ElementsAre("new.pack.part", "middle.pack", "old.pack"));
  EXPECT_EQ(ListPackCache(home_)[1].bytes, 20u);
  TouchPack(middle);
  EXPECT_THAT(Listed(), ElementsAre("middle.pack", "new.pack.part", "old.pack"));
  EXPECT_TRUE(ListPackCache(home_ + "/absent").empty());
}

TEST_F(PackCacheTest, RoomIsMadeByDeletingWhatWasNotUsedForLongest) {
  Put("a.pack", 100, 300);
  Put("b.pack", 100, 200);
  Put("c.pack", 100, 100);
  const std::string mine = Put("mine.pack", 500, 400);  // replaced, so it does not count
  ASSERT_TRUE(MakePackRoom(mine, 150, 350));
  EXPECT_THAT(Listed(), ElementsAre("c.pack", "b.pack", "mine.pack"));
  ASSERT_TRUE(MakePackRoom(mine, 350, 350));
  EXPECT_THAT(Listed(), ElementsAre("mine.pack"));
}

TEST_F(PackCacheTest, RoomInANewFolderMakesTheFolder) {
  ASSERT_TRUE(MakePackRoom(home_ + "/a/b/m.pack", 10, 100));
  EXPECT_TRUE(fs::is_directory(home_ + "/a/b"));
}

TEST_F(PackCacheTest, MoreThanHalfOfTheFreeDiskIsRefused) {
  const uint64_t available = fs::space(home_).available;
  const Status status = MakePackRoom(home_ + "/m.pack", available / 4 * 3, UINT64_MAX);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(status.error().message, HasSubstr("m.pack"));
}

TEST_F(PackCacheTest, TheLimitIsANumberOfGigabytes) {
  EXPECT_EQ(*PackCacheLimit(), 64'000'000'000u);
  setenv("LUCID_PACK_GB", "0.5", 1);
  EXPECT_EQ(*PackCacheLimit(), 500'000'000u);
  setenv("LUCID_PACK_GB", "0", 1);
  EXPECT_EQ(*PackCacheLimit(), 0u);
  for (const char* bad : {"many", "1x", "-1", "nan", "1e30"}) {
    setenv("LUCID_PACK_GB", bad, 1);
    EXPECT_THAT(PackCacheLimit().error().message, HasSubstr("LUCID_PACK_GB")) << bad;
  }
}

}  // namespace
}  // namespace lucid
