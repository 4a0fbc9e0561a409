// GGUF v2 and v3 reader over mmap. Entry point: GgufFile::Open.
//
// The file is untrusted: every count, length, offset and dimension is compared with the bytes that
// are left before it is used, and memory stays within a small multiple of the file's size.
// Specification: ggml docs/gguf.md. Writing is gguf_writer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mmap_file.h"
#include "base/result.h"
#include "format/checkpoint.h"

namespace lucid {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
std::string_view GgufTypeName(GgufType type);

// A metadata value. Strings and arrays of strings view the mapped file.
struct GgufValue {
  GgufType type = GgufType::kUint32;
  GgufType element = GgufType::kUint32;  // of an array
  // Scalars: unsigned and bool as uint64_t, signed as int64_t, floats as double. Arrays likewise,
  // by element.
  std::variant<uint64_t, int64_t, double, std::string_view, std::vector<uint64_t>,
               std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>,
               std::vector<GgufValue>>
      value;

  bool is_array() const { return type == GgufType::kArray; }
  size_t array_size() const;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct ParsedGguf;

class GgufFile final : public Checkpoint {
 public:
  // Opens `path`; if it is a part of a split file (`split.count` > 1), all parts, found by their
  // names.
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // The same for one file in memory, which must outlive the result; `name` stands for it in errors.
  static Result<std::unique_ptr<GgufFile>> FromBytes(std::span<const std::byte> bytes,
                                                     std::string name);
  // A file that is not written yet, as its readers will see it; what the arguments view must
  // outlive the result. Tensors whose numbers nobody reads may lack their data.
  static Result<std::unique_ptr<GgufFile>> Outline(std::vector<GgufEntry> metadata,
                                                   std::vector<TensorEntry> tensors,
                                                   std::string name);

  Format format() const override { return Format::kGguf; }
  std::span<const TensorEntry> tensors() const override { return tensors_; }
  const TensorEntry* Find(std::string_view name) const override;
  std::span<const std::string> files() const override { return paths_; }
  uint64_t file_bytes() const override { return file_bytes_; }

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  std::span<const GgufEntry> metadata() const {
    return metadata_;
  }                                                  // of the first part, in file order
  const GgufValue* Get(std::string_view key) const;  // nullptr where absent

  // Typed reads. Absent: kNotFound naming the key. Another type or a value out of range:
  // kInvalidFile.
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;  // integers convert
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  // The same with a value for absent keys; a wrong type is still an error.
  Result<int64_t> GetIntOr(std::string_view key, int64_t absent) const;
  Result<double> GetFloatOr(std::string_view key, double absent) const;
  Result<bool> GetBoolOr(std::string_view key, bool absent) const;

 private:
  GgufFile() = default;
  Status OpenParts(const std::string& path, int64_t index, int64_t count);
  void Adopt(ParsedGguf part, int shard);
  Status BuildIndex();
  Result<const GgufValue*> Require(std::string_view key) const;
  tl::unexpected<Error> WrongType(std::string_view key, const GgufValue& value,
                                  std::string_view wanted) const;

  std::vector<MmapFile> maps_;
  std::vector<std::string> paths_;
  uint64_t file_bytes_ = 0;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  std::vector<GgufEntry> metadata_;
  std::unordered_map<std::string_view, size_t> metadata_index_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace lucid
