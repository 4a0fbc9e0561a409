// GgufFile: opens one file or all parts of a split one, and reads typed metadata. The parsing is
// gguf_parse.cc.
#include "format/gguf.h"

#include <limits>
#include <utility>

#include "format/gguf_parse.h"
#include "format/quote.h"

namespace lucid {
namespace {

constexpr std::string_view kTypeNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                           "int32",  "float32", "bool",   "string", "array",
                                           "uint64", "int64",   "float64"};
constexpr int kPartDigits = 5;  // model-00001-of-00005.gguf

const GgufEntry* FindKey(std::span<const GgufEntry> metadata, std::string_view key) {
  for (const GgufEntry& entry : metadata) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

// An integer of a split key, or `absent`.
Result<int64_t> SplitNumber(const ParsedGguf& part, std::string_view path, std::string_view key,
                            int64_t absent) {
  const GgufEntry* entry = FindKey(part.metadata, key);
  if (entry == nullptr) return absent;
  const auto& value = entry->value.value;
  if (const auto* number = std::get_if<uint64_t>(&value);
      number != nullptr && *number <= 1u << 30) {
    return static_cast<int64_t>(*number);
  }
  if (const auto* number = std::get_if<int64_t>(&value); number != nullptr && *number >= 0)
    return *number;
  return Err(ErrorCode::kInvalidFile, "{}: key \"{}\" is not a valid count", path, key);
}

std::string PartSuffix(int64_t index, int64_t count) {
  return fmt::format("-{:0{}}-of-{:0{}}.gguf", index + 1, kPartDigits, count, kPartDigits);
}

// The paths of all parts, given the path of part `index` of `count`.
Result<std::vector<std::string>> PartPaths(const std::string& path, int64_t index, int64_t count) {
  const std::string suffix = PartSuffix(index, count);
  if (!path.ends_with(suffix)) {
    return Err(ErrorCode::kInvalidFile,
               "{}: part {} of a model split in {}, but its name does not end in {}, so the other "
               "parts cannot be "
               "found",
               path, index + 1, count, suffix);
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  std::vector<std::string> paths;
  for (int64_t i = 0; i < count; ++i) paths.push_back(stem + PartSuffix(i, count));
  return paths;
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kTypeNames) ? kTypeNames[number] : "unknown";
}

size_t GgufValue::array_size() const {
  if (!is_array()) return 0;
  return std::visit(
      [](const auto& held) -> size_t {
        if constexpr (requires { held.size(); }) return held.size();
        return 0;
      },
      value);
}

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  LUCID_ASSIGN_OR_RETURN(MmapFile map, MmapFile::Open(path));
  LUCID_ASSIGN_OR_RETURN(ParsedGguf parsed, ParseGguf(map.bytes(), path));
  LUCID_ASSIGN_OR_RETURN(const int64_t count, SplitNumber(parsed, path, "split.count", 1));
  if (count > 1) {
    LUCID_ASSIGN_OR_RETURN(const int64_t index, SplitNumber(parsed, path, "split.no", 0));
    if (index >= count) {
      return Err(ErrorCode::kInvalidFile, "{}: \"split.no\" is {}, but \"split.count\" is {}", path,
                 index, count);
    }
    LUCID_RETURN_IF_ERROR(file->OpenParts(path, index, count));
  } else {
    file->file_bytes_ = map.bytes().size();
    file->maps_.push_back(std::move(map));
    file->paths_.push_back(path);
    file->Adopt(std::move(parsed), 0);
  }
  LUCID_RETURN_IF_ERROR(file->BuildIndex());
  return file;
}

Result<std::unique_ptr<GgufFile>> GgufFile::FromBytes(std::span<const std::byte> bytes,
                                                      std::string name) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  LUCID_ASSIGN_OR_RETURN(ParsedGguf parsed, ParseGguf(bytes, name));
  file->file_bytes_ = bytes.size();
  file->paths_.push_back(std::move(name));
  file->Adopt(std::move(parsed), 0);
  LUCID_RETURN_IF_ERROR(file->BuildIndex());
  return file;
}

Result<std::unique_ptr<GgufFile>> GgufFile::Outline(std::vector<GgufEntry> metadata,
                                                    std::vector<TensorEntry> tensors,
                                                    std::string name) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->paths_.push_back(std::move(name));
  file->metadata_ = std::move(metadata);
  file->tensors_ = std::move(tensors);
  LUCID_RETURN_IF_ERROR(file->BuildIndex());
  return file;
}

Status GgufFile::OpenParts(const std::string& path, int64_t index, int64_t count) {
  LUCID_ASSIGN_OR_RETURN(const std::vector<std::string> paths, PartPaths(path, index, count));
  int64_t promised = -1;  // tensors of all parts, where the first part says it
  for (int64_t i = 0; i < count; ++i) {
    Result<MmapFile> map = MmapFile::Open(paths[i]);
    if (!map) {
      return Err(map.error().code, "part {} of {} of the split model is missing: {}", i + 1, count,
                 map.error().message);
    }
    LUCID_ASSIGN_OR_RETURN(ParsedGguf part, ParseGguf(map->bytes(), paths[i]));
    LUCID_ASSIGN_OR_RETURN(const int64_t part_index, SplitNumber(part, paths[i], "split.no", -1));
    LUCID_ASSIGN_OR_RETURN(const int64_t part_count,
                           SplitNumber(part, paths[i], "split.count", -1));
    if (part_index != i || part_count != count) {
      return Err(ErrorCode::kInvalidFile,
                 "{}: its \"split.no\" and \"split.count\" do not say part {} of {}", paths[i],
                 i + 1, count);
    }
    if (i == 0) {
      LUCID_ASSIGN_OR_RETURN(promised, SplitNumber(part, paths[i], "split.tensors.count", -1));
    }
    file_bytes_ += map->bytes().size();
    maps_.push_back(*std::move(map));
    paths_.push_back(paths[i]);
    Adopt(std::move(part), static_cast<int>(i));
  }
  if (promised >= 0 && promised != static_cast<int64_t>(tensors_.size())) {
    return Err(ErrorCode::kInvalidFile,
               "{}: \"split.tensors.count\" is {}, but the parts hold {} tensors", paths[0],
               promised, tensors_.size());
  }
  return {};
}

void GgufFile::Adopt(ParsedGguf part, int shard) {
  if (shard == 0) {
    version_ = part.version;
    alignment_ = part.alignment;
    metadata_ = std::move(part.metadata);
  }
  for (TensorEntry& entry : part.tensors) {
    entry.shard = shard;
    tensors_.push_back(std::move(entry));
  }
}

Status GgufFile::BuildIndex() {
  metadata_index_.reserve(metadata_.size());
  for (size_t i = 0; i < metadata_.size(); ++i) metadata_index_.emplace(metadata_[i].key, i);
  tensor_index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensor_index_.emplace(tensors_[i].name, i).second) {
      return Err(ErrorCode::kInvalidFile, "{}: tensor {} is also in another part",
                 paths_[tensors_[i].shard], Quote(tensors_[i].name));
    }
  }
  return {};
}

const TensorEntry* GgufFile::Find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::Get(std::string_view key) const {
  const auto found = metadata_index_.find(key);
  return found == metadata_index_.end() ? nullptr : &metadata_[found->second].value;
}

Result<const GgufValue*> GgufFile::Require(std::string_view key) const {
  const GgufValue* value = Get(key);
  if (value == nullptr)
    return Err(ErrorCode::kNotFound, "{}: key {} is missing", paths_[0], Quote(key));
  return value;
}

tl::unexpected<Error> GgufFile::WrongType(std::string_view key, const GgufValue& value,
                                          std::string_view wanted) const {
  return Err(ErrorCode::kInvalidFile, "{}: key {} is of type {}, not {}", paths_[0], Quote(key),
             GgufTypeName(value.type), wanted);
}

Result<int64_t> GgufFile::GetInt(std::string_view key) const {
  LUCID_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (const auto* number = std::get_if<int64_t>(&value->value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value->value);
  if (number == nullptr || value->type == GgufType::kBool)
    return WrongType(key, *value, "an integer");
  if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Err(ErrorCode::kInvalidFile, "{}: key {} is {}, out of range", paths_[0], Quote(key),
               *number);
  }
  return static_cast<int64_t>(*number);
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  LUCID_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (const auto* number = std::get_if<double>(&value->value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value->value)) return static_cast<double>(*number);
  const auto* number = std::get_if<uint64_t>(&value->value);
  if (number == nullptr || value->type == GgufType::kBool)
    return WrongType(key, *value, "a number");
  return static_cast<double>(*number);
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  LUCID_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufType::kBool) return WrongType(key, *value, "bool");
  return std::get<uint64_t>(value->value) != 0;
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  LUCID_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  const auto* text = std::get_if<std::string_view>(&value->value);
  if (text == nullptr) return WrongType(key, *value, "string");
  return *text;
}

Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t absent) const {
  return Get(key) == nullptr ? Result<int64_t>(absent) : GetInt(key);
}

Result<double> GgufFile::GetFloatOr(std::string_view key, double absent) const {
  return Get(key) == nullptr ? Result<double>(absent) : GetFloat(key);
}

Result<bool> GgufFile::GetBoolOr(std::string_view key, bool absent) const {
  return Get(key) == nullptr ? Result<bool>(absent) : GetBool(key);
}

}  // namespace lucid
