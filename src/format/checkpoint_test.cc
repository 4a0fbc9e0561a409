#include "format/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf_writer.h"
#include "format/hf_config.h"
#include "format/quote.h"
#include "format/test_util.h"

namespace lucid {
namespace {

using ::testing::HasSubstr;

TEST(Checkpoint, TheContentDecidesTheFormat) {
  const TempFolder folder;
  GgufWriter writer;
  ASSERT_TRUE(writer.Begin(folder.File("a.bin")));
  ASSERT_TRUE(writer.Finish());
  auto opened = OpenCheckpoint(folder.File("a.bin"));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->format(), Checkpoint::Format::kGguf);

  const std::string safetensors = Raw(uint64_t{2}) + "{}";
  opened = OpenCheckpoint(folder.Put("b.bin", safetensors));
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->format(), Checkpoint::Format::kSafetensors);
  EXPECT_EQ((*opened)->file_bytes(), safetensors.size());

  folder.Put("model.safetensors", safetensors);
  opened = OpenCheckpoint(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->format(), Checkpoint::Format::kSafetensors);
}

TEST(Checkpoint, OtherFilesAreNamed) {
  const TempFolder folder;
  auto opened = OpenCheckpoint(
      folder.Put("x.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"));
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("Git LFS"));
  opened = OpenCheckpoint(folder.Put("x.bin", "<!DOCTYPE html>"));
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("neither a GGUF nor a safetensors file"));
  opened = OpenCheckpoint(folder.File("absent"));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  opened = OpenCheckpoint(folder.path());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message, HasSubstr("model.safetensors"));
}

TEST(HfConfig, ReadsAnObject) {
  const TempFolder folder;
  folder.Put("config.json", R"({"b": 1, "a": {"rope_theta": 1e4}})");
  const auto config = ReadHfConfig(folder.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->begin().key(), "b");
  EXPECT_EQ((*config)["a"]["rope_theta"], 1e4);
}

TEST(HfConfig, BadFilesAreNamed) {
  const TempFolder folder;
  auto config = ReadHfConfig(folder.path());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::kNotFound);
  struct Bad {
    std::string text;
    const char* message;
  };
  const Bad kBad[] = {
      {"", "not valid JSON"},
      {"{\"a\": }", "at byte 7"},
      {"[1]", "not a JSON object"},
      {"{\"a\":" + std::string(1000000, '[') + "}", "nested deeper than 64"},
      {"{\"a\": \"\xff\"}", "not valid JSON"},
      {"{\"a\": 1e999}", "not valid JSON"},
      {"{\"a\": \"" + std::string(5000000, 'x') + "\"}", "more than"},
  };
  for (const Bad& bad : kBad) {
    folder.Put("config.json", bad.text);
    config = ReadHfConfig(folder.path());
    ASSERT_FALSE(config) << bad.message;
    EXPECT_THAT(config.error().message, HasSubstr(bad.message));
    EXPECT_THAT(config.error().message, HasSubstr("config.json"));
  }
}

TEST(HfConfig, BracketsInStringsDoNotNest) {
  const TempFolder folder;
  const std::string path =
      folder.Put("x.json", "[\"" + std::string(500, '[') + "\\\"" + std::string(500, '{') + "\"]");
  const auto json = ReadJsonFile(path);
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->size(), 1u);
}

TEST(Quote, UntrustedNamesArePrintable) {
  EXPECT_EQ(Quote("blk.0.attn_q"), "\"blk.0.attn_q\"");
  EXPECT_EQ(Quote("a\"\\\n\x1b\xff"), R"("a\"\\\x0a\x1b\xff")");
  EXPECT_EQ(Quote(std::string(100, 'x'), 4), "\"xxxx...\"");
}

}  // namespace
}  // namespace lucid
