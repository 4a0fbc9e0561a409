// See safetensors_parse.h.
#include "format/safetensors_parse.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json.h"
#include "format/quote.h"

namespace lucid {
namespace {

using Json = nlohmann::json;

constexpr DType kStoredTypes[] = {DType::kF64, DType::kF32,  DType::kF16,    DType::kBF16,
                                  DType::kI64, DType::kI32,  DType::kI16,    DType::kI8,
                                  DType::kU8,  DType::kBool, DType::kF8E4M3, DType::kF8E5M2};
// Types of the format that this build has no place for; anything else is not a type at all.
constexpr std::string_view kKnownUnsupported[] = {"U64", "U32",     "U16",     "F8_E8M0",
                                                  "F4",  "F6_E2M3", "F6_E3M2", "C64"};

std::optional<DType> StoredType(std::string_view name) {
  for (const DType type : kStoredTypes) {
    if (Name(type) == name) return type;
  }
  return std::nullopt;
}

// Events of a JSON text. Each handler either accepts an event or ends the parse with `error`.
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Reject("null"); }
  bool boolean(bool) override { return Reject("a bool"); }
  bool number_integer(number_integer_t) override { return Reject("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { return Reject("a number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Reject("a fractional or huge number");
  }
  bool string(string_t&) override { return Reject("a string"); }
  bool binary(binary_t&) override { return Reject("binary data"); }
  bool start_object(std::size_t) override { return Reject("an object"); }
  bool start_array(std::size_t) override { return Reject("an array"); }
  bool end_object() override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(fmt::format("not valid JSON near byte {}", position));
  }

  const std::string& error() const { return error_; }

 protected:
  // An event that has no place where it occurs.
  virtual bool Reject(std::string_view what) = 0;
  bool Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

 private:
  std::string error_;
};

// One tensor as the header describes it.
struct HeaderTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// {"__metadata__": {string: string}, NAME: {"dtype": string, "shape": [...], "data_offsets": [a,
// b]}, ...}
class HeaderEvents final : public JsonEvents {
 public:
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<HeaderTensor> tensors;

  bool start_object(std::size_t) override {
    if (depth_ == 0) return Enter();
    if (depth_ == 1) {
      if (!in_metadata_) tensors.emplace_back().name = key_;
      return Enter();
    }
    return Reject("an object");
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1) in_metadata_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets"))
      return Reject("an array");
    HeaderTensor& tensor = tensors.back();
    const bool shape = field_ == "shape";
    if (std::exchange(shape ? tensor.has_shape : tensor.has_offsets, true)) return Twice();
    list_ = shape ? &tensor.shape : &tensor.offsets;
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      key_ = name;
      in_metadata_ = name == "__metadata__";
      return true;
    }
    field_ = name;
    if (in_metadata_ || name == "dtype" || name == "shape" || name == "data_offsets") return true;
    return Fail(fmt::format("tensor {} has the unknown field {}", Quote(key_), Quote(name)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return Reject("a number");
    list_->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || list_ != nullptr) return Reject("a string");
    if (in_metadata_) {
      metadata.emplace_back(field_, value);
      return true;
    }
    if (field_ != "dtype") return Reject("a string");
    if (std::exchange(tensors.back().has_dtype, true)) return Twice();
    tensors.back().dtype = value;
    return true;
  }

 protected:
  bool Reject(std::string_view what) override {
    if (depth_ == 0) return Fail(fmt::format("the header is {}, not an object", what));
    if (depth_ == 1)
      return Fail(fmt::format("the entry of {} is {}, not an object", Quote(key_), what));
    return Fail(fmt::format("field {} of {} holds {}", Quote(field_), Quote(key_), what));
  }

 private:
  bool Enter() {
    ++depth_;
    return true;
  }
  bool Twice() {
    return Fail(fmt::format("tensor {} has the field {} twice", Quote(key_), Quote(field_)));
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string key_;
  std::string field_;
  std::vector<uint64_t>* list_ = nullptr;
};

// {"weight_map": {TENSOR: SHARD, ...}, anything else: ignored}
class IndexEvents final : public JsonEvents {
 public:
  std::map<std::string, std::string> shards;
  bool found = false;

  bool start_object(std::size_t) override {
    if (depth_ == 1 && in_map_) found = true;
    if (depth_ >= 2 && in_map_) return Reject("an object");
    return Enter();
  }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override {
    return in_map_ || depth_ == 0 ? Reject("an array") : Enter();
  }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (depth_ == 1) in_map_ = name == "weight_map";
    key_ = name;
    return true;
  }
  bool string(string_t& value) override {
    if (!in_map_ || depth_ != 2) return Reject("a string");
    if (!shards.emplace(key_, value).second)
      return Fail(fmt::format("tensor {} occurs twice", Quote(key_)));
    return true;
  }
  bool number_unsigned(number_unsigned_t) override { return Reject("a number"); }

 protected:
  bool Reject(std::string_view what) override {
    if (depth_ == 0) return Fail(fmt::format("the index is {}, not an object", what));
    if (!in_map_) return true;
    if (depth_ == 1) return Fail(fmt::format("\"weight_map\" is {}, not an object", what));
    return Fail(fmt::format("the shard of tensor {} is {}, not a file name", Quote(key_), what));
  }

 private:
  bool Enter() {
    if (++depth_ > kMaxJsonDepth)
      return Fail(fmt::format("the index is nested deeper than {} levels", kMaxJsonDepth));
    return true;
  }
  bool Leave() {
    --depth_;
    if (depth_ == 1) in_map_ = false;
    return true;
  }

  int depth_ = 0;
  bool in_map_ = false;
  std::string key_;
};

bool IsPlainFileName(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Type, shape and place of one tensor, checked against the `data_bytes` of the file.
Result<TensorEntry> MakeEntry(const HeaderTensor& header, uint64_t data_bytes,
                              std::string_view file) {
  const auto invalid = [&](std::string_view what) {
    return Err(ErrorCode::kInvalidFile, "{}: tensor {} {}", file, Quote(header.name), what);
  };
  if (!header.has_dtype) return invalid("has no dtype");
  const std::optional<DType> type = StoredType(header.dtype);
  if (!type) {
    if (std::ranges::find(kKnownUnsupported, header.dtype) == std::end(kKnownUnsupported)) {
      return invalid(fmt::format("has the unknown dtype {}", Quote(header.dtype)));
    }
    return Err(ErrorCode::kUnsupported, "{}: tensor {} has the dtype {}, which cannot be used",
               file, Quote(header.name), header.dtype);
  }
  if (!header.has_shape) return invalid("has no shape");
  if (header.offsets.size() != 2)
    return invalid(fmt::format("has {} data offsets, not 2", header.offsets.size()));
  if (header.shape.size() > Tensor::kMaxRank) {
    return Err(ErrorCode::kUnsupported, "{}: tensor {} has {} dimensions, more than {}", file,
               Quote(header.name), header.shape.size(), static_cast<int>(Tensor::kMaxRank));
  }
  TensorEntry entry;
  entry.name = header.name;
  entry.tensor.dtype = *type;
  entry.tensor.rank = static_cast<int>(header.shape.size());
  int64_t bytes = Info(*type).block_bytes;
  for (size_t i = 0; i < header.shape.size(); ++i) {
    if (header.shape[i] > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, static_cast<int64_t>(header.shape[i]), &bytes)) {
      return invalid("has more bytes than any file can hold");
    }
    entry.tensor.shape[i] = static_cast<int64_t>(header.shape[i]);
  }
  const uint64_t begin = header.offsets[0];
  const uint64_t end = header.offsets[1];
  if (begin > end) return invalid(fmt::format("ends at {}, before it begins at {}", end, begin));
  if (end > data_bytes) {
    return invalid(fmt::format("ends at {}, after the file's {} data bytes; the file is cut short",
                               end, data_bytes));
  }
  if (end - begin != static_cast<uint64_t>(bytes)) {
    return invalid(fmt::format("needs {} bytes for its shape, but has {}", bytes, end - begin));
  }
  entry.offset = begin;
  return entry;
}

// Sorts by place; tensors must fill the data without gap or overlap, and have different names.
Status CheckLayout(std::vector<TensorEntry>& tensors, uint64_t data_bytes, std::string_view file) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  std::ranges::sort(tensors, [](const TensorEntry& a, const TensorEntry& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    return a.tensor.bytes() < b.tensor.bytes();
  });
  uint64_t end = 0;
  for (const TensorEntry& entry : tensors) {
    if (entry.offset != end) {
      return Err(ErrorCode::kInvalidFile,
                 "{}: tensor {} begins at {}, which {} the tensor before it ending at {}", file,
                 Quote(entry.name), entry.offset,
                 entry.offset < end ? "overlaps" : "leaves a gap after", end);
    }
    end += static_cast<uint64_t>(entry.tensor.bytes());
    names.push_back(entry.name);
  }
  if (end != data_bytes) {
    return Err(ErrorCode::kInvalidFile, "{}: the last {} bytes belong to no tensor", file,
               data_bytes - end);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    return Err(ErrorCode::kInvalidFile, "{}: tensor {} occurs twice", file, Quote(*twice));
  }
  return {};
}

}  // namespace

std::string_view SafetensorsName(DType type) {
  return std::ranges::find(kStoredTypes, type) == std::end(kStoredTypes) ? std::string_view()
                                                                         : Name(type);
}

Result<ParsedSafetensors> ParseSafetensors(std::span<const std::byte> bytes,
                                           std::string_view file) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    return Err(ErrorCode::kInvalidFile, "{}: not a safetensors file: it has only {} bytes", file,
               bytes.size());
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - sizeof(length) || length > kSafetensorsMaxHeaderBytes || length < 2) {
    return Err(ErrorCode::kInvalidFile, "{}: the header length {} does not fit a file of {} bytes",
               file, length, bytes.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof(length),
                                length);
  if (header.front() != '{') {
    return Err(ErrorCode::kInvalidFile, "{}: the header does not begin with an opening brace",
               file);
  }
  HeaderEvents events;
  if (!Json::sax_parse(header, &events)) {
    return Err(ErrorCode::kInvalidFile, "{}: {}", file, events.error());
  }
  ParsedSafetensors parsed;
  parsed.metadata = std::move(events.metadata);
  const std::span<const std::byte> data = bytes.subspan(sizeof(length) + length);
  parsed.tensors.reserve(events.tensors.size());
  for (const HeaderTensor& tensor : events.tensors) {
    LUCID_ASSIGN_OR_RETURN(TensorEntry entry, MakeEntry(tensor, data.size(), file));
    parsed.tensors.push_back(std::move(entry));
  }
  LUCID_RETURN_IF_ERROR(CheckLayout(parsed.tensors, data.size(), file));
  for (TensorEntry& entry : parsed.tensors) {
    entry.tensor.data = data.data() + entry.offset;
    entry.offset += sizeof(length) + length;
  }
  return parsed;
}

Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text,
                                                                 std::string_view file) {
  IndexEvents events;
  if (!Json::sax_parse(text, &events)) {
    return Err(ErrorCode::kInvalidFile, "{}: {}", file, events.error());
  }
  if (!events.found) return Err(ErrorCode::kInvalidFile, "{}: it has no \"weight_map\"", file);
  for (const auto& [tensor, shard] : events.shards) {
    if (!IsPlainFileName(shard)) {
      return Err(ErrorCode::kInvalidFile, "{}: the shard {} of tensor {} is not a plain file name",
                 file, Quote(shard), Quote(tensor));
    }
  }
  return std::move(events.shards);
}

}  // namespace lucid
