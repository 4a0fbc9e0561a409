#include "format/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "format/test_util.h"

namespace lucid {
namespace {

using ::testing::HasSubstr;

struct NamedValue {
  const char* key;
  GgufValue value;
};

GgufValue Scalar(GgufType type, decltype(GgufValue::value) value) {
  return {.type = type, .element = GgufType::kUint32, .value = std::move(value)};
}
GgufValue Array(GgufType element, decltype(GgufValue::value) value) {
  return {.type = GgufType::kArray, .element = element, .value = std::move(value)};
}

// Every value type with its extremes, every array type, an empty array and arrays of arrays.
std::vector<NamedValue> EveryKindOfValue() {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const GgufValue inner = Array(GgufType::kUint8, std::vector<uint64_t>{1, 255});
  return {
      {"u8", Scalar(GgufType::kUint8, uint64_t{255})},
      {"i8", Scalar(GgufType::kInt8, int64_t{-128})},
      {"u16", Scalar(GgufType::kUint16, uint64_t{65535})},
      {"i16", Scalar(GgufType::kInt16, int64_t{-32768})},
      {"u32", Scalar(GgufType::kUint32, uint64_t{4294967295u})},
      {"i32", Scalar(GgufType::kInt32, int64_t{-2147483648})},
      {"f32", Scalar(GgufType::kFloat32, 0.1f * 1.0)},
      {"bool", Scalar(GgufType::kBool, uint64_t{1})},
      {"string", Scalar(GgufType::kString, std::string_view("a\0b \xe2\x82\xac", 7))},
      {"empty string", Scalar(GgufType::kString, std::string_view())},
      {"u64", Scalar(GgufType::kUint64, std::numeric_limits<uint64_t>::max())},
      {"i64", Scalar(GgufType::kInt64, kMin)},
      {"f64", Scalar(GgufType::kFloat64, 0.1)},
      {"[u8]", Array(GgufType::kUint8, std::vector<uint64_t>{0, 1, 255})},
      {"[i8]", Array(GgufType::kInt8, std::vector<int64_t>{-128, 127})},
      {"[u16]", Array(GgufType::kUint16, std::vector<uint64_t>{65535})},
      {"[i16]", Array(GgufType::kInt16, std::vector<int64_t>{-32768})},
      {"[u32]", Array(GgufType::kUint32, std::vector<uint64_t>{7, 4294967295u})},
      {"[i32]", Array(GgufType::kInt32, std::vector<int64_t>{-1})},
      {"[f32]", Array(GgufType::kFloat32, std::vector<double>{0.5, -2.0})},
      {"[bool]", Array(GgufType::kBool, std::vector<uint64_t>{0, 1})},
      {"[string]", Array(GgufType::kString, std::vector<std::string_view>{"x", "", "yz"})},
      {"[u64]",
       Array(GgufType::kUint64, std::vector<uint64_t>{std::numeric_limits<uint64_t>::max()})},
      {"[i64]", Array(GgufType::kInt64, std::vector<int64_t>{kMin})},
      {"[f64]", Array(GgufType::kFloat64, std::vector<double>{1e300})},
      {"[]", Array(GgufType::kFloat32, std::vector<double>{})},
      {"[[u8]]", Array(GgufType::kArray, std::vector<GgufValue>{inner, inner})},
  };
}

void ExpectSame(const GgufValue& a, const GgufValue& b, const std::string& key) {
  EXPECT_EQ(a.type, b.type) << key;
  ASSERT_EQ(a.value.index(), b.value.index()) << key;
  EXPECT_EQ(a.array_size(), b.array_size()) << key;
  if (a.is_array()) {
    EXPECT_EQ(a.element, b.element) << key;
  }
  if (const auto* nested = std::get_if<std::vector<GgufValue>>(&a.value)) {
    const auto& other = std::get<std::vector<GgufValue>>(b.value);
    for (size_t i = 0; i < nested->size(); ++i) ExpectSame((*nested)[i], other[i], key);
    return;
  }
  std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (!std::is_same_v<T, std::vector<GgufValue>>) {
          EXPECT_EQ(held, std::get<T>(b.value)) << key;
        }
      },
      a.value);
}

TEST(GgufWriter, EveryKindOfMetadataComesBack) {
  const TempFolder folder;
  GgufWriter writer;
  const std::vector<NamedValue> values = EveryKindOfValue();
  for (const NamedValue& item : values) ASSERT_TRUE(writer.Add(item.key, item.value)) << item.key;
  ASSERT_TRUE(writer.Begin(folder.File("m.gguf")));
  ASSERT_TRUE(writer.Finish());

  const auto file = GgufFile::Open(folder.File("m.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->version(), 3u);
  ASSERT_EQ((*file)->metadata().size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ((*file)->metadata()[i].key, values[i].key);
    ExpectSame((*file)->metadata()[i].value, values[i].value, values[i].key);
  }
}

TEST(GgufWriter, TensorsComeBackAlignedWhateverThePieces) {
  const TempFolder folder;
  std::string data(34 * 3 + 12 + 4, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  for (const uint32_t alignment : {32u, 8u, 4096u}) {
    for (const size_t piece : {size_t{1}, size_t{33}, data.size()}) {
      GgufWriter writer;
      ASSERT_TRUE(writer.AddUint32("general.alignment", alignment));
      ASSERT_TRUE(writer.AddTensor("q", DType::kQ8_0, std::vector<int64_t>{3, 32}));
      ASSERT_TRUE(writer.AddTensor("f", DType::kF32, std::vector<int64_t>{1, 1, 3}));
      ASSERT_TRUE(writer.AddTensor("s", DType::kF32, std::vector<int64_t>{}));
      ASSERT_TRUE(writer.Begin(folder.File("t.gguf")));
      for (size_t at = 0; at < data.size(); at += piece) {
        ASSERT_TRUE(writer.Write(AsBytes(std::string_view(data).substr(at, piece))));
      }
      ASSERT_TRUE(writer.Finish());

      const auto file = GgufFile::Open(folder.File("t.gguf"));
      ASSERT_TRUE(file) << file.error().message;
      EXPECT_EQ((*file)->alignment(), alignment);
      ASSERT_EQ((*file)->tensors().size(), 3u);
      size_t at = 0;
      for (const TensorEntry& entry : (*file)->tensors()) {
        EXPECT_EQ(entry.offset % alignment, 0u);
        const auto size = static_cast<size_t>(entry.tensor.bytes());
        EXPECT_EQ(std::memcmp(entry.tensor.data, data.data() + at, size), 0) << entry.name;
        at += size;
      }
      EXPECT_EQ((*file)->Find("q")->tensor.shape[0], 3);
      EXPECT_EQ((*file)->Find("q")->tensor.shape[1], 32);
      EXPECT_EQ((*file)->Find("f")->tensor.rank, 3);
      EXPECT_EQ((*file)->Find("s")->tensor.rank, 0);
    }
  }
}

TEST(GgufWriter, ALaterValueReplacesAnEarlierOne) {
  const TempFolder folder;
  GgufWriter writer;
  ASSERT_TRUE(writer.AddUint32("general.file_type", 1));
  ASSERT_TRUE(writer.AddBool("b", true));
  ASSERT_TRUE(writer.AddFloat32("general.file_type", 2.5f));
  ASSERT_TRUE(writer.Begin(folder.File("r.gguf")));
  ASSERT_TRUE(writer.Finish());
  const auto file = GgufFile::Open(folder.File("r.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ((*file)->metadata().size(), 2u);
  EXPECT_EQ((*file)->metadata()[0].key, "general.file_type");
  EXPECT_EQ((*file)->GetFloat("general.file_type"), 2.5);
}

TEST(GgufWriter, WhatNoFileMayHoldIsRefused) {
  GgufWriter writer;
  const std::vector<int64_t> shape = {2, 32};
  ASSERT_TRUE(writer.AddTensor("a", DType::kF32, shape));
  EXPECT_FALSE(writer.AddTensor("a", DType::kF32, shape));
  EXPECT_FALSE(writer.AddTensor("", DType::kF32, shape));
  EXPECT_FALSE(writer.AddTensor(std::string(65, 'n'), DType::kF32, shape));
  EXPECT_FALSE(writer.AddTensor("u", DType::kU8, shape));
  EXPECT_FALSE(writer.AddTensor("z", DType::kF32, std::vector<int64_t>{2, 0}));
  EXPECT_FALSE(writer.AddTensor("n", DType::kF32, std::vector<int64_t>{-2, -2}));
  EXPECT_FALSE(
      writer.AddTensor("w", DType::kF32, std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_FALSE(writer.AddTensor("5", DType::kF32, std::vector<int64_t>{1, 1, 1, 1, 1}));
  const auto rows = writer.AddTensor("k", DType::kQ4_K, shape);
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message, HasSubstr("rows of 32 values"));
  EXPECT_FALSE(writer.AddUint32("", 1));
  EXPECT_FALSE(writer.AddUint32("general.alignment", 3));
  GgufValue deep = Array(GgufType::kUint8, std::vector<uint64_t>{1});
  for (int i = 0; i < 10; ++i) deep = Array(GgufType::kArray, std::vector<GgufValue>{deep});
  EXPECT_FALSE(writer.Add("deep", deep));
}

TEST(GgufWriter, FailuresLeaveNoFile) {
  const TempFolder folder;
  {
    GgufWriter writer;
    ASSERT_TRUE(writer.AddTensor("a", DType::kF32, std::vector<int64_t>{4}));
    ASSERT_TRUE(writer.Begin(folder.File("half.gguf")));
    ASSERT_TRUE(writer.Write(AsBytes("12345678")));
    const Status finished = writer.Finish();
    ASSERT_FALSE(finished);
    EXPECT_THAT(finished.error().message, HasSubstr("8 of its 16 bytes"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  GgufWriter writer;
  const Status begun = writer.Begin(folder.File("no/such/folder.gguf"));
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, ErrorCode::kIo);
}

TEST(GgufWriter, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  GgufWriter writer;
  ASSERT_TRUE(writer.AddString("general.architecture", "llama"));
  ASSERT_TRUE(writer.Begin("/dev/full"));
  const Status finished = writer.Finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, ErrorCode::kIo);
  EXPECT_THAT(finished.error().message, HasSubstr("No space left"));
}

}  // namespace
}  // namespace lucid
