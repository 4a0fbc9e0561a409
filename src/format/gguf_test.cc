#include "format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf_writer.h"
#include "format/test_util.h"

namespace lucid {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMax64 = ~uint64_t{0};

std::string Text(std::string_view text) {
  return Raw(uint64_t{text.size()}) + std::string(text);
}
std::string Pair(std::string_view key, GgufType type, std::string_view value) {
  return Text(key) + Raw(static_cast<uint32_t>(type)) + std::string(value);
}
std::string TensorRow(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      uint64_t offset) {
  std::string row = Text(name) + Raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) row += Raw(dim);
  return row + Raw(type) + Raw(offset);
}
std::string Header(uint64_t n_tensors, uint64_t n_pairs, uint32_t version = 3) {
  return "GGUF" + Raw(version) + Raw(n_tensors) + Raw(n_pairs);
}
// A file of these parts; data begins at a multiple of 32.
std::string Build(const std::vector<std::string>& pairs, const std::vector<std::string>& rows,
                  std::string_view data) {
  std::string file = Header(rows.size(), pairs.size());
  for (const std::string& pair : pairs) file += pair;
  for (const std::string& row : rows) file += row;
  file.resize((file.size() + 31) / 32 * 32);
  return file + std::string(data);
}
std::string OneTensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset,
                      size_t data_bytes) {
  return Build({}, {TensorRow("t", dims, type, offset)}, std::string(data_bytes, '\0'));
}

Result<std::unique_ptr<GgufFile>> Parse(std::string_view bytes) {
  return GgufFile::FromBytes(AsBytes(bytes), "m.gguf");
}

struct BadFile {
  const char* what;
  std::string bytes;
  const char* message;  // a part of the sentence
};

std::vector<BadFile> FilesWithBadCounts() {
  return {
      {"empty", "", "only 0 bytes"},
      {"magic only", "GGUF", "ends inside the header"},
      {"other magic", "GGML" + std::string(40, '\0'), "not a GGUF file"},
      {"kv count 2^63", Header(0, uint64_t{1} << 63) + std::string(64, '\0'), "metadata pairs"},
      {"kv count 2^32", Header(0, uint64_t{1} << 32) + std::string(64, '\0'), "metadata pairs"},
      {"tensor count 2^63", Header(uint64_t{1} << 63, 0) + std::string(64, '\0'), "tensors"},
      {"key length wraps", Header(0, 1) + Raw(kMax64) + std::string(64, 'x'),
       "ends inside a metadata key"},
      {"string length",
       Build({Pair("k", GgufType::kString, Raw(uint64_t{1} << 30))}, {}, std::string(64, 'x')),
       "ends inside key \"k\""},
      {"array length wraps when multiplied",
       Build({Pair("k", GgufType::kArray, Raw(uint32_t{10}) + Raw((uint64_t{1} << 61) + 1))}, {},
             std::string(64, 'x')),
       "array elements"},
      {"string array of 2^30",
       Build({Pair("k", GgufType::kArray, Raw(uint32_t{8}) + Raw(uint64_t{1} << 30))}, {},
             std::string(64, '\0')),
       "array elements"},
  };
}

std::vector<BadFile> FilesWithBadMetadata() {
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += Raw(uint32_t{9}) + Raw(uint64_t{1});
  const auto u32 = [](std::string_view key, uint32_t value) {
    return Pair(key, GgufType::kUint32, Raw(value));
  };
  return {
      {"empty key", Build({u32("", 1)}, {}, ""), "key is empty"},
      {"duplicate key", Build({u32("x.a", 1), u32("x.a", 2)}, {}, ""), "key \"x.a\" occurs twice"},
      {"long key", Build({u32(std::string(70000, 'k'), 1)}, {}, ""), "70000 bytes"},
      {"value type 13",
       Build({Pair("x.a", static_cast<GgufType>(13), std::string(8, '\0'))}, {}, ""),
       "unknown value type 13"},
      {"array of type 99",
       Build({Pair("x.a", GgufType::kArray, Raw(uint32_t{99}) + Raw(uint64_t{1}))}, {}, "abcd"),
       "unknown type 99"},
      {"deep arrays", Build({Pair("x.a", GgufType::kArray, nested)}, {}, ""), "nests arrays"},
      {"bool 2", Build({Pair("x.b", GgufType::kBool, "\2")}, {}, std::string(64, '\0')), "byte 2"},
      {"alignment 0", Build({u32("general.alignment", 0)}, {}, ""), "general.alignment"},
      {"alignment 3", Build({u32("general.alignment", 3)}, {}, ""), "power of two"},
      {"alignment 2 GiB",
       Build({u32("general.alignment", 1u << 31)}, {TensorRow("t", {4}, 0, 0)},
             std::string(64, 'x')),
       "before its tensor data"},
      {"alignment is a string",
       Build({Pair("general.alignment", GgufType::kString, Text("32"))}, {}, ""), "of type string"},
      {"control bytes in a name", Build({u32("\x1b[2J", 1), u32("\x1b[2J", 2)}, {}, ""),
       "\\x1b[2J"},
  };
}

std::vector<BadFile> FilesWithBadTensors() {
  const std::string data(128, '\0');
  constexpr uint64_t kBig = uint64_t{1} << 62;
  return {
      {"offset after the end", OneTensor({4}, 0, uint64_t{1} << 20, 64), "tensor \"t\""},
      {"offset wraps", OneTensor({4}, 0, kMax64 - 31, 64), "tensor \"t\""},
      {"offset not aligned", OneTensor({4}, 0, 4, 64), "multiple of the alignment"},
      {"data cut", OneTensor({17}, 0, 0, 64), "cut short"},
      {"dimension 0", OneTensor({4, 0}, 0, 0, 64), "dimension of 0"},
      {"huge times 0", OneTensor({kBig, 0, kBig}, 0, 0, 64), "tensor \"t\""},
      {"product wraps", OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, 64),
       "more elements"},
      {"negative", OneTensor({uint64_t{1} << 63, 1}, 0, 0, 64), "more elements"},
      {"bytes wrap", OneTensor({kBig + 1}, 0, 0, 64), "more bytes"},
      {"five dimensions", OneTensor({1, 1, 1, 1, 1}, 0, 0, 64), "5 dimensions"},
      {"4 billion dimensions",
       Build({}, {Text("t") + Raw(0xffffffffu) + std::string(64, '\1')}, data), "dimensions"},
      {"row is no block multiple", OneTensor({33}, 2, 0, 64), "rows of 33 values"},
      {"removed type", OneTensor({32}, 4, 0, 128), "type number 4"},
      {"type 2^32-1", OneTensor({32}, 0xffffffffu, 0, 128), "type number 4294967295"},
      {"type that is not GGUF's", OneTensor({32}, 100, 0, 128), "type number 100"},
      {"overlap", Build({}, {TensorRow("a", {16}, 0, 0), TensorRow("b", {16}, 0, 32)}, data),
       "\"a\" and \"b\" overlap"},
      {"same place", Build({}, {TensorRow("a", {8}, 0, 0), TensorRow("b", {8}, 0, 0)}, data),
       "overlap"},
      {"same name", Build({}, {TensorRow("a", {8}, 0, 0), TensorRow("a", {8}, 0, 32)}, data),
       "occurs twice"},
      {"long name", Build({}, {TensorRow(std::string(65, 'a'), {8}, 0, 0)}, data), "65 bytes"},
      {"no name", Build({}, {TensorRow("", {8}, 0, 0)}, data), "empty name"},
      {"NUL in a name", Build({}, {TensorRow(std::string_view("a\0b", 3), {8}, 0, 0)}, data),
       "NUL"},
  };
}

void ExpectRejected(const std::vector<BadFile>& files) {
  for (const BadFile& file : files) {
    const auto parsed = Parse(file.bytes);
    ASSERT_FALSE(parsed) << file.what;
    EXPECT_THAT(parsed.error().message, HasSubstr(file.message)) << file.what;
    EXPECT_THAT(parsed.error().message, HasSubstr("m.gguf")) << file.what;
  }
}

TEST(Gguf, BadCountsAreRejected) {
  ExpectRejected(FilesWithBadCounts());
}
TEST(Gguf, BadMetadataIsRejected) {
  ExpectRejected(FilesWithBadMetadata());
}
TEST(Gguf, BadTensorsAreRejected) {
  ExpectRejected(FilesWithBadTensors());
}

TEST(Gguf, OtherVersionsAreNamed) {
  for (const uint32_t version : {1u, 4u}) {
    const auto parsed = Parse(Header(0, 0, version));
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(parsed.error().message, HasSubstr(fmt::format("version {}", version)));
  }
  const auto swapped = Parse(Header(0, 0, 0x03000000));
  ASSERT_FALSE(swapped);
  EXPECT_THAT(swapped.error().message, HasSubstr("big-endian"));
  EXPECT_TRUE(Parse(Header(0, 0, 2)));
}

TEST(Gguf, EveryPrefixIsRejected) {
  const std::string file = Build(
      {Pair("general.architecture", GgufType::kString, Text("llama")),
       Pair("x", GgufType::kArray, Raw(uint32_t{8}) + Raw(uint64_t{2}) + Text("a") + Text("bc"))},
      {TensorRow("t", {4, 2}, 0, 0)}, std::string(32, 'd'));
  ASSERT_TRUE(Parse(file));
  for (size_t n = 0; n < file.size(); ++n)
    EXPECT_FALSE(Parse(std::string_view(file).substr(0, n))) << n;
}

TEST(Gguf, ShapesAreOutermostFirst) {
  const std::string file =
      OneTensor({4, 3}, 0, 0, 64);  // GGUF writes the innermost dimension first
  const auto parsed = Parse(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  const TensorEntry* entry = (*parsed)->Find("t");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->tensor.rows(), 3);
  EXPECT_EQ(entry->tensor.cols(), 4);
  EXPECT_EQ((*parsed)->Find("u"), nullptr);
}

TEST(Gguf, TypedReadsConvertAndRefuse) {
  const std::string file =
      Build({Pair("u", GgufType::kUint16, Raw(uint16_t{7})),
             Pair("i", GgufType::kInt32, Raw(int32_t{-3})),
             Pair("f", GgufType::kFloat32, Raw(0.5f)), Pair("b", GgufType::kBool, "\1"),
             Pair("s", GgufType::kString, Text("hi")), Pair("big", GgufType::kUint64, Raw(kMax64))},
            {}, "");
  const auto parsed = Parse(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  const GgufFile& gguf = **parsed;
  EXPECT_EQ(gguf.GetInt("u"), 7);
  EXPECT_EQ(gguf.GetInt("i"), -3);
  EXPECT_EQ(gguf.GetFloat("i"), -3.0);
  EXPECT_EQ(gguf.GetFloat("f"), 0.5);
  EXPECT_EQ(gguf.GetBool("b"), true);
  EXPECT_EQ(gguf.GetString("s"), "hi");
  EXPECT_EQ(gguf.GetIntOr("absent", 9), 9);
  EXPECT_EQ(gguf.GetFloatOr("absent", 2.5), 2.5);
  EXPECT_EQ(gguf.GetBoolOr("absent", true), true);

  const auto absent = gguf.GetInt("llama.block_count");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("llama.block_count"));
  const auto wrong = gguf.GetInt("s");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidFile);
  EXPECT_THAT(wrong.error().message, HasSubstr("of type string"));
  EXPECT_FALSE(gguf.GetInt("f"));
  EXPECT_FALSE(gguf.GetInt("b"));
  EXPECT_FALSE(gguf.GetInt("big"));
  EXPECT_FALSE(gguf.GetBool("u"));
  EXPECT_FALSE(gguf.GetBoolOr("s", false));
}

// Writes part `index` of `count` with one tensor named after it.
void WritePart(const TempFolder& folder, uint32_t index, uint32_t count, uint32_t total_tensors,
               const std::string& tensor) {
  GgufWriter writer;
  if (index == 0) {
    ASSERT_TRUE(writer.AddString("general.architecture", "llama"));
  }
  ASSERT_TRUE(writer.AddUint32("split.no", index));
  ASSERT_TRUE(writer.AddUint32("split.count", count));
  ASSERT_TRUE(writer.AddUint32("split.tensors.count", total_tensors));
  ASSERT_TRUE(writer.AddTensor(tensor, DType::kF32, std::vector<int64_t>{1}));
  ASSERT_TRUE(writer.Begin(folder.File(fmt::format("m-{:05}-of-{:05}.gguf", index + 1, count))));
  ASSERT_TRUE(writer.Write(std::as_bytes(std::span(&index, 1))));
  ASSERT_TRUE(writer.Finish());
}

TEST(Gguf, AnyPartOpensTheWholeSplitModel) {
  const TempFolder folder;
  for (uint32_t i = 0; i < 3; ++i) WritePart(folder, i, 3, 3, fmt::format("t{}", i));
  for (int i = 1; i <= 3; ++i) {
    const auto file = GgufFile::Open(folder.File(fmt::format("m-{:05}-of-00003.gguf", i)));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->files().size(), 3u);
    EXPECT_EQ((*file)->GetString("general.architecture"), "llama");
    ASSERT_EQ((*file)->tensors().size(), 3u);
    for (int t = 0; t < 3; ++t) {
      const TensorEntry* entry = (*file)->Find(fmt::format("t{}", t));
      ASSERT_NE(entry, nullptr);
      EXPECT_EQ(entry->shard, t);
      int32_t value = -1;
      std::memcpy(&value, entry->tensor.data, sizeof(value));
      EXPECT_EQ(value, t);
    }
  }
}

TEST(Gguf, BrokenSplitModelsAreNamed) {
  const TempFolder folder;
  const std::string first = folder.File("m-00001-of-00002.gguf");
  WritePart(folder, 0, 2, 2, "a");
  auto file = GgufFile::Open(first);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(file.error().message, HasSubstr("part 2 of 2"));
  EXPECT_THAT(file.error().message, HasSubstr("m-00002-of-00002.gguf"));

  WritePart(folder, 1, 2, 2, "a");
  file = GgufFile::Open(first);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("also in another part"));

  std::filesystem::copy_file(first, folder.File("m-00002-of-00002.gguf"),
                             std::filesystem::copy_options::overwrite_existing);
  file = GgufFile::Open(first);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("part 2 of 2"));

  WritePart(folder, 0, 2, 5, "a");
  WritePart(folder, 1, 2, 5, "b");
  file = GgufFile::Open(first);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("split.tensors.count"));

  std::filesystem::rename(first, folder.File("renamed.gguf"));
  file = GgufFile::Open(folder.File("renamed.gguf"));
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("-00001-of-00002.gguf"));
}

TEST(Gguf, AbsentFilesAndFoldersAreNamed) {
  const auto absent = GgufFile::Open("/no/such/file.gguf");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/no/such/file.gguf"));
  EXPECT_FALSE(GgufFile::Open("/tmp"));
}

}  // namespace
}  // namespace lucid
