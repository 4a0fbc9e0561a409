#include "store/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lucid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const std::vector<HubFile>& files) {
  std::vector<std::string> names;
  for (const HubFile& file : files) names.push_back(file.name);
  return names;
}

std::vector<HubFile> Files(const std::vector<std::string>& names) {
  std::vector<HubFile> files;
  for (const std::string& name : names) files.push_back({name, 1, ""});
  return files;
}

TEST(HubNameTest, ParsesRepositoryAndQuantisation) {
  const auto plain = ParseHubName("hf:owner/Some-Model.GGUF");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repo, "owner/Some-Model.GGUF");
  EXPECT_EQ(plain->quant, "");
  EXPECT_EQ(ParseHubName("hf:a/b:Q5_K_M")->quant, "Q5_K_M");
}

TEST(HubNameTest, RejectsWhatIsNoRepository) {
  for (const char* name : {"hf:", "hf:owner", "hf:owner/", "hf:/repo", "hf:a/b/c", "hf:a/..",
                           "hf:../b", "hf:a/b:", "hf:a/b:x/y", "hf:a b/c", "hf:a/b?x", "a/b"}) {
    EXPECT_FALSE(ParseHubName(name).has_value()) << name;
  }
}

TEST(HubListingTest, ReadsNamesSizesAndChecksums) {
  const std::string sha(64, 'a');
  const auto files = ParseHubListing(
      R"({"siblings":[{"rfilename":"README.md","size":7},{"rfilename":"q/m.gguf","lfs":{"sha256":")" +
      sha + R"(","size":99}},{"rfilename":"old.gguf","size":5,"lfs":{"oid":")" + sha + R"("}}]})");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_THAT(Names(*files), ElementsAre("README.md", "q/m.gguf", "old.gguf"));
  EXPECT_EQ((*files)[0].bytes, 7u);
  EXPECT_EQ((*files)[0].sha256, "");
  EXPECT_EQ((*files)[1].bytes, 99u);
  EXPECT_EQ((*files)[1].sha256, sha);
  EXPECT_EQ((*files)[2].sha256, sha);
}

TEST(HubListingTest, RejectsPathsThatLeaveTheFolder) {
  for (const char* name : {"../x.gguf", "a/../../x", "/etc/passwd", "a//b", "..", "a\\\\b", "",
                           "a/", "x\\u0000y", "x\\ny"}) {
    const auto files =
        ParseHubListing(std::string(R"({"siblings":[{"rfilename":")") + name + R"("}]})");
    EXPECT_FALSE(files.has_value()) << name;
  }
}

TEST(HubListingTest, RejectsDeepNesting) {
  const auto files = ParseHubListing(R"({"siblings":)" + std::string(200'000, '[') +
                                     std::string(200'000, ']') + "}");
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, HasSubstr("the hub's answer is nested deeper"));
}

TEST(HubListingTest, RejectsWhatIsNoListing) {
  for (const char* body : {"", "[]", "{", "{\"siblings\":3}", "{\"siblings\":[3]}", "<html>",
                           "{\"siblings\":[{\"rfilename\":3}]}"}) {
    EXPECT_FALSE(ParseHubListing(body).has_value()) << body;
  }
  EXPECT_FALSE(ParseHubListing(std::string(100000, '[')).has_value());
}

TEST(ChooseHubFilesTest, TakesTheWantedQuantisationAsAWord) {
  const auto files =
      Files({"m-Q4_K_S.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-Q8_0.gguf", "m-Q4_K.gguf"});
  EXPECT_EQ(ChooseHubFiles(files, {"o/r", "Q4_K"})->main_file, "m-Q4_K.gguf");
  EXPECT_EQ(ChooseHubFiles(files, {"o/r", "q8_0"})->main_file, "m-Q8_0.gguf");
  EXPECT_EQ(ChooseHubFiles(files, {"o/r", ""})->main_file, "m-Q4_K_M.gguf");
  const auto missing = ChooseHubFiles(files, {"o/r", "Q6_K"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("m-Q8_0.gguf"));
  EXPECT_THAT(missing.error().message, ::testing::Not(HasSubstr("mmproj")));
}

TEST(ChooseHubFilesTest, FallsBackToTheOnlyGguf) {
  EXPECT_EQ(ChooseHubFiles(Files({"a.txt", "model.f16.gguf"}), {"o/r", ""})->main_file,
            "model.f16.gguf");
}

TEST(ChooseHubFilesTest, TakesAllPartsOfASplitFile) {
  const auto files =
      Files({"Q8_0/m-Q8_0-00002-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf", "m-Q2_K.gguf"});
  const auto chosen = ChooseHubFiles(files, {"o/r", "Q8_0"});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_THAT(Names(chosen->files),
              ElementsAre("Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"));
  EXPECT_EQ(chosen->main_file, "m-Q8_0-00001-of-00002.gguf");
  EXPECT_FALSE(ChooseHubFiles(Files({"m-Q8_0-00001-of-00003.gguf"}), {"o/r", "Q8_0"}).has_value());
}

TEST(ChooseHubFilesTest, TakesSafetensorsWhereThereIsNoGguf) {
  const auto chosen =
      ChooseHubFiles(Files({"README.md", "config.json", "model.safetensors",
                            "sub/model.safetensors", "tokenizer.json", "pytorch_model.bin"}),
                     {"o/r", ""});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_THAT(Names(chosen->files),
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(chosen->main_file, "");
  EXPECT_FALSE(
      ChooseHubFiles(Files({"pytorch_model.bin", "config.json"}), {"o/r", ""}).has_value());
  EXPECT_FALSE(
      ChooseHubFiles(Files({"config.json", "m.safetensors"}), {"o/r", "Q8_0"}).has_value());
}

}  // namespace
}  // namespace lucid
