#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/safetensors_parse.h"
#include "format/test_util.h"

namespace lucid {
namespace {

using ::testing::HasSubstr;

std::string File(std::string_view header, std::string_view data) {
  return Raw(uint64_t{header.size()}) + std::string(header) + std::string(data);
}
std::string_view Data() {
  return "0123456789abcdef";
}

Result<ParsedSafetensors> Parse(std::string_view bytes) {
  return ParseSafetensors(AsBytes(bytes), "m.safetensors");
}

// A header with one tensor "a" of 16 bytes whose fields can be replaced.
std::string One(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                     offsets);
}

TEST(Safetensors, ValidFilesAreRead) {
  const std::string bytes = File(
      R"({"z":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}}   )",
      Data());
  const auto parsed = Parse(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 3u);
  EXPECT_EQ(parsed->tensors[0].name, "e");
  EXPECT_EQ(parsed->tensors[1].name, "a");
  EXPECT_EQ(parsed->tensors[1].tensor.dtype, DType::kBF16);
  EXPECT_EQ(parsed->tensors[1].tensor.rows(), 2);
  EXPECT_EQ(parsed->tensors[2].name, "z");
  EXPECT_EQ(std::memcmp(parsed->tensors[2].tensor.data, "89abcdef", 8), 0);
  EXPECT_EQ(parsed->tensors[2].offset, bytes.size() - 8);
  ASSERT_EQ(parsed->metadata.size(), 1u);
  EXPECT_EQ(parsed->metadata[0].second, "pt");
  EXPECT_TRUE(Parse(File("{}", "")));
  EXPECT_TRUE(Parse(File(R"({"__metadata__":{}})", "")));
  EXPECT_TRUE(Parse(File(One(R"("F32")", "[]", "[0,4]"), "1234")));
}

struct BadHeader {
  const char* what;
  std::string header;
  const char* message;
};

TEST(Safetensors, BadHeadersAreRejected) {
  const BadHeader kBad[] = {
      {"not JSON", R"({"a": })", "not valid JSON"},
      {"array", "[1,2]", "opening brace"},
      {"two values", "{}{}", "not valid JSON"},
      {"not UTF-8", "{\"\xff\":1}", "not valid JSON"},
      {"deep", "{\"a\":" + std::string(50000, '[') + std::string(50000, ']') + "}", "is an array"},
      {"deep objects", R"({"a":{"shape":{"b":{)", "field \"shape\" of \"a\" holds an object"},
      {"same name",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "occurs twice"},
      {"short data", One(R"("F32")", "[8]", "[0,32]"), "cut short"},
      {"trailing data", One(R"("F32")", "[2]", "[0,8]"), "last 8 bytes"},
      {"gap", One(R"("F32")", "[2]", "[8,16]"), "gap"},
      {"reversed", One(R"("F32")", "[4]", "[16,0]"), "before it begins"},
      {"negative offset", One(R"("F32")", "[4]", "[-16,0]"), "negative"},
      {"float offset", One(R"("F32")", "[4]", "[0.0,16.0]"), "fractional"},
      {"string offset", One(R"("F32")", "[4]", R"(["0","16"])"), "a string"},
      {"three offsets", One(R"("F32")", "[4]", "[0,16,32]"), "3 data offsets"},
      {"offset 2^64", One(R"("F32")", "[4]", "[0,18446744073709551632]"), "huge"},
      {"size mismatch", One(R"("F32")", "[5]", "[0,16]"), "needs 20 bytes"},
      {"shape wraps", One(R"("F32")", "[4294967296,4294967296,4]", "[0,16]"), "more bytes"},
      {"negative shape", One(R"("F32")", "[-2,-2]", "[0,16]"), "negative"},
      {"unknown dtype", One(R"("Q4_K")", "[4]", "[0,16]"), "unknown dtype \"Q4_K\""},
      {"unsupported dtype", One(R"("U32")", "[4]", "[0,16]"), "U32, which cannot be used"},
      {"dtype twice", R"({"a":{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,16]}})",
       "twice"},
      {"offsets twice",
       R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[],"data_offsets":[0,16]}})", "twice"},
      {"no dtype", R"({"a":{"shape":[4],"data_offsets":[0,16]}})", "no dtype"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", "no shape"},
      {"unknown field", R"({"a":{"dtype":"F32","x":1}})", "unknown field \"x\""},
      {"rank 5", One(R"("F32")", "[1,1,1,1,4]", "[0,16]"), "5 dimensions"},
      {"metadata number", R"({"__metadata__":{"n":1}})", "field \"n\""},
      {"tensor is null", R"({"a":null})", "\"a\" is null"},
  };
  for (const BadHeader& bad : kBad) {
    const std::string bytes = File(bad.header, Data());
    const auto parsed = Parse(bytes);
    ASSERT_FALSE(parsed) << bad.what;
    EXPECT_THAT(parsed.error().message, HasSubstr(bad.message)) << bad.what;
    EXPECT_THAT(parsed.error().message, HasSubstr("m.safetensors")) << bad.what;
  }
  const std::string overlap = File(
      R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
      Data());
  ASSERT_FALSE(Parse(overlap));
  EXPECT_THAT(Parse(overlap).error().message, HasSubstr("overlaps"));
}

TEST(Safetensors, BadLengthsAreRejected) {
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{3}, uint64_t{10000}, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_FALSE(Parse(Raw(length) + "{}")) << length;
  }
  EXPECT_FALSE(Parse("1234567"));
}

TEST(Safetensors, EveryPrefixIsRejected) {
  const std::string bytes = File(One(R"("F32")", "[4]", "[0,16]"), Data());
  ASSERT_TRUE(Parse(bytes));
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(Parse(std::string_view(bytes).substr(0, n))) << n;
}

TEST(Safetensors, ShardNamesMustBePlainFileNames) {
  for (const char* name :
       {"../x", "/etc/hostname", "x/../../y", "..\\\\x", "a\\u0000b", "..", ".", ""}) {
    const std::string text = fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name);
    const auto parsed = ParseSafetensorsIndex(text, "i.json");
    ASSERT_FALSE(parsed) << name;
    EXPECT_THAT(parsed.error().message, HasSubstr("plain file name")) << name;
  }
  for (const char* text :
       {R"({"weight_map":["a"]})", R"({"weight_map":{"a":1}})", R"({"weight_map":null})", "{}",
        "[]", "1", "", R"({"weight_map":{"a":"x","a":"y"}})"}) {
    EXPECT_FALSE(ParseSafetensorsIndex(text, "i.json")) << text;
  }
  EXPECT_FALSE(ParseSafetensorsIndex("{\"m\":" + std::string(100000, '['), "i.json"));
  const auto parsed = ParseSafetensorsIndex(
      R"({"metadata":{"x":[1,{"y":2.5}]},"weight_map":{"a":"m-1.safetensors"}})", "i.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->at("a"), "m-1.safetensors");
}

TEST(Safetensors, AFolderOpensItsShards) {
  const TempFolder folder;
  const auto one = [](std::string_view name) {
    return File(
        fmt::format(R"({{"{}":{{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}}})", name),
        Data());
  };
  folder.Put("m-1.safetensors", one("a"));
  folder.Put("m-2.safetensors", one("b"));
  auto opened = SafetensorsCheckpoint::Open(folder.path());
  ASSERT_FALSE(opened);  // two files and nothing that joins them
  EXPECT_THAT(opened.error().message, HasSubstr("index.json"));

  const std::string index =
      folder.Put("model.safetensors.index.json",
                 R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  for (const std::string& path : {folder.path(), index}) {
    opened = SafetensorsCheckpoint::Open(path);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->files().size(), 2u);
    EXPECT_EQ((*opened)->folder(), folder.path());
    ASSERT_NE((*opened)->Find("b"), nullptr);
    EXPECT_EQ((*opened)->Find("b")->shard, 1);
    EXPECT_EQ((*opened)->Find("c"), nullptr);
  }
  folder.Put("model.safetensors.index.json",
             R"({"weight_map":{"a":"m-1.safetensors","c":"m-2.safetensors"}})");
  EXPECT_FALSE(SafetensorsCheckpoint::Open(folder.path()));
  folder.Put("model.safetensors.index.json", R"({"weight_map":{"a":"m-3.safetensors"}})");
  opened = SafetensorsCheckpoint::Open(folder.path());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().message, HasSubstr("m-3.safetensors"));
}

TEST(Safetensors, WhatIsWrittenComesBack) {
  const TempFolder folder;
  const std::vector<float> floats = {1.0f, -2.5f, 3.0f, 0.0f, 1e-30f, 7.0f};
  const std::vector<int32_t> ints = {1, -2};
  const Tensor matrix{.data = std::as_bytes(std::span(floats)).data(),
                      .dtype = DType::kF32,
                      .rank = 2,
                      .shape = {2, 3}};
  const Tensor vector{
      .data = std::as_bytes(std::span(ints)).data(), .dtype = DType::kI32, .rank = 1, .shape = {2}};
  const std::vector<SafetensorsTensor> tensors = {{"x \"quoted\" \xc3\xa9", matrix},
                                                  {"ids", vector}};
  const std::string path = folder.File("out.safetensors");
  const Status written = WriteSafetensors(path, tensors);
  ASSERT_TRUE(written) << written.error().message;

  const auto opened = SafetensorsCheckpoint::Open(path);
  ASSERT_TRUE(opened) << opened.error().message;
  const TensorEntry* x = (*opened)->Find(tensors[0].name);
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->tensor.rank, 2);
  EXPECT_EQ(x->tensor.cols(), 3);
  EXPECT_EQ(x->offset % 8, 0u);
  EXPECT_EQ(std::memcmp(x->tensor.data, floats.data(), 24), 0);
  EXPECT_EQ(std::memcmp((*opened)->Find("ids")->tensor.data, ints.data(), 8), 0);
}

TEST(Safetensors, WritingReportsWhatCannotBe) {
  const TempFolder folder;
  const std::vector<float> floats(32);
  const Tensor tensor{.data = std::as_bytes(std::span(floats)).data(),
                      .dtype = DType::kF32,
                      .rank = 1,
                      .shape = {32}};
  const Tensor blocks{.data = tensor.data, .dtype = DType::kQ4_0, .rank = 1, .shape = {32}};
  const std::string path = folder.File("x.safetensors");
  EXPECT_FALSE(WriteSafetensors(path, std::vector<SafetensorsTensor>{{"q", blocks}}));
  EXPECT_FALSE(
      WriteSafetensors(path, std::vector<SafetensorsTensor>{{"a", tensor}, {"a", tensor}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const auto failed =
      WriteSafetensors(folder.File("no/folder"), std::vector<SafetensorsTensor>{{"a", tensor}});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  if (std::filesystem::exists("/dev/full")) {
    const auto full = WriteSafetensors("/dev/full", std::vector<SafetensorsTensor>{{"a", tensor}});
    ASSERT_FALSE(full);
    EXPECT_THAT(full.error().message, HasSubstr("No space left"));
  }
}

}  // namespace
}  // namespace lucid
