// The GGUF parser. Entry point: ParseGguf. Specification: ggml docs/gguf.md.
//
// Nothing in the file is believed: a count or length is compared with the bytes that are left
// before memory is reserved or a pointer moved, so memory stays within a small multiple of the
// file's size.
#include "format/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "format/quote.h"

namespace lucid {
namespace {

constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;  // key length, key, type, value
constexpr uint64_t kMinTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;  // name, rank, one dimension, type, offset

// Bytes of a value of this type in the file: exact for numbers, the least for strings and arrays; 0
// if unknown.
constexpr uint64_t MinBytes(uint32_t type) {
  constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// Reads little-endian values; false (and no move) where the bytes do not suffice.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  bool Read(T& value) {
    static_assert(std::endian::native == std::endian::little);
    if (left() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  bool ReadString(std::string_view& text) {
    uint64_t length = 0;
    if (left() < sizeof(length)) return false;
    std::memcpy(&length, bytes_.data() + position_, sizeof(length));
    if (length > left() - sizeof(length)) return false;
    text = {reinterpret_cast<const char*>(bytes_.data()) + position_ + sizeof(length), length};
    position_ += sizeof(length) + length;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view file)
      : bytes_(bytes), file_(file), cursor_(bytes) {}

  Result<ParsedGguf> Parse() {
    uint64_t n_tensors = 0;
    uint64_t n_pairs = 0;
    LUCID_RETURN_IF_ERROR(ReadHeader(n_tensors, n_pairs));
    LUCID_RETURN_IF_ERROR(ReadMetadata(n_pairs));
    LUCID_RETURN_IF_ERROR(ReadAlignment());
    LUCID_RETURN_IF_ERROR(ReadTensorTable(n_tensors));
    LUCID_RETURN_IF_ERROR(PlaceTensors());
    LUCID_RETURN_IF_ERROR(CheckOverlap());
    return std::move(out_);
  }

 private:
  Status ReadHeader(uint64_t& n_tensors, uint64_t& n_pairs);
  Status ReadMetadata(uint64_t n_pairs);
  Status ReadPair(GgufEntry& entry);
  Status ReadValue(std::string_view key, GgufValue& value);
  Status ReadArray(std::string_view key, int depth, GgufValue& value);
  template <typename Stored, typename Kept>
  void ReadNumbers(uint64_t count, GgufValue& value);
  Status ReadBools(std::string_view key, uint64_t count, GgufValue& value);
  Status ReadStrings(std::string_view key, uint64_t count, GgufValue& value);
  Status ReadNested(std::string_view key, int depth, uint64_t count, GgufValue& value);
  Status ReadAlignment();
  Status ReadTensorTable(uint64_t n_tensors);
  Status ReadTensor(TensorEntry& entry);
  Status ReadShape(TensorEntry& entry);
  Status PlaceTensors();
  Status CheckOverlap() const;

  template <typename... Args>
  tl::unexpected<Error> Invalid(fmt::format_string<Args...> format, Args&&... args) const {
    return Err(ErrorCode::kInvalidFile, "{}: {}", file_,
               fmt::format(format, std::forward<Args>(args)...));
  }
  tl::unexpected<Error> EndsInside(std::string_view what) const {
    return Invalid("the file ends inside {} ({} bytes)", what, bytes_.size());
  }

  std::span<const std::byte> bytes_;
  std::string_view file_;
  Cursor cursor_;
  ParsedGguf out_;
};

Status Parser::ReadHeader(uint64_t& n_tensors, uint64_t& n_pairs) {
  char magic[4];
  if (!cursor_.Read(magic)) return Invalid("not a GGUF file: it has only {} bytes", bytes_.size());
  if (std::memcmp(magic, "GGUF", sizeof(magic)) != 0) {
    return Invalid("not a GGUF file: it starts with {}", Quote({magic, sizeof(magic)}));
  }
  if (!cursor_.Read(out_.version)) return EndsInside("the header");
  if (out_.version != 0 && (out_.version & 0xffffu) == 0) {
    return Err(ErrorCode::kUnsupported,
               "{}: a big-endian GGUF file; only little-endian files can be read", file_);
  }
  if (out_.version != 2 && out_.version != 3) {
    return Err(out_.version == 0 ? ErrorCode::kInvalidFile : ErrorCode::kUnsupported,
               "{}: GGUF version {}; versions 2 and 3 can be read", file_, out_.version);
  }
  if (!cursor_.Read(n_tensors) || !cursor_.Read(n_pairs)) return EndsInside("the header");
  if (n_pairs > cursor_.left() / kMinPairBytes) {
    return Invalid("the header promises {} metadata pairs, more than {} bytes can hold", n_pairs,
                   bytes_.size());
  }
  if (n_tensors > cursor_.left() / kMinTensorBytes) {
    return Invalid("the header promises {} tensors, more than {} bytes can hold", n_tensors,
                   bytes_.size());
  }
  return {};
}

Status Parser::ReadMetadata(uint64_t n_pairs) {
  out_.metadata.resize(n_pairs);
  std::unordered_set<std::string_view> keys;
  keys.reserve(n_pairs);
  for (GgufEntry& entry : out_.metadata) {
    LUCID_RETURN_IF_ERROR(ReadPair(entry));
    if (!keys.insert(entry.key).second) return Invalid("key {} occurs twice", Quote(entry.key));
  }
  return {};
}

Status Parser::ReadPair(GgufEntry& entry) {
  if (!cursor_.ReadString(entry.key)) return EndsInside("a metadata key");
  if (entry.key.empty()) return Invalid("a metadata key is empty");
  if (entry.key.size() > kGgufMaxKeyBytes) {
    return Invalid("key {} has {} bytes, more than {}", Quote(entry.key), entry.key.size(),
                   kGgufMaxKeyBytes);
  }
  uint32_t type = 0;
  if (!cursor_.Read(type)) return EndsInside(fmt::format("key {}", Quote(entry.key)));
  if (MinBytes(type) == 0)
    return Invalid("key {} has the unknown value type {}", Quote(entry.key), type);
  entry.value.type = static_cast<GgufType>(type);
  return ReadValue(entry.key, entry.value);
}

// Reads the value of `value.type`: arrays by ReadArray, scalars here.
Status Parser::ReadValue(std::string_view key, GgufValue& value) {
  if (value.type == GgufType::kArray) return ReadArray(key, 1, value);
  bool ok = false;
  const auto read = [&]<typename Stored, typename Kept>(Stored stored, Kept) {
    ok = cursor_.Read(stored);
    value.value = static_cast<Kept>(stored);
  };
  switch (value.type) {
    case GgufType::kUint8:
      read(uint8_t{}, uint64_t{});
      break;
    case GgufType::kInt8:
      read(int8_t{}, int64_t{});
      break;
    case GgufType::kUint16:
      read(uint16_t{}, uint64_t{});
      break;
    case GgufType::kInt16:
      read(int16_t{}, int64_t{});
      break;
    case GgufType::kUint32:
      read(uint32_t{}, uint64_t{});
      break;
    case GgufType::kInt32:
      read(int32_t{}, int64_t{});
      break;
    case GgufType::kFloat32:
      read(float{}, double{});
      break;
    case GgufType::kUint64:
      read(uint64_t{}, uint64_t{});
      break;
    case GgufType::kInt64:
      read(int64_t{}, int64_t{});
      break;
    case GgufType::kFloat64:
      read(double{}, double{});
      break;
    case GgufType::kBool:
      read(uint8_t{}, uint64_t{});
      if (ok && std::get<uint64_t>(value.value) > 1) {
        return Invalid("key {} is a bool with the byte {}", Quote(key),
                       std::get<uint64_t>(value.value));
      }
      break;
    case GgufType::kString: {
      std::string_view text;
      ok = cursor_.ReadString(text);
      value.value = text;
      break;
    }
    case GgufType::kArray:
      break;  // above
  }
  if (!ok) return EndsInside(fmt::format("key {}", Quote(key)));
  return {};
}

// The caller has compared `count` with the bytes that are left.
template <typename Stored, typename Kept>
void Parser::ReadNumbers(uint64_t count, GgufValue& value) {
  std::vector<Kept> numbers(count);
  for (Kept& number : numbers) {
    Stored stored{};
    cursor_.Read(stored);
    number = static_cast<Kept>(stored);
  }
  value.value = std::move(numbers);
}

Status Parser::ReadBools(std::string_view key, uint64_t count, GgufValue& value) {
  ReadNumbers<uint8_t, uint64_t>(count, value);
  for (const uint64_t byte : std::get<std::vector<uint64_t>>(value.value)) {
    if (byte > 1) return Invalid("key {} has a bool with the byte {}", Quote(key), byte);
  }
  return {};
}

Status Parser::ReadStrings(std::string_view key, uint64_t count, GgufValue& value) {
  std::vector<std::string_view> texts(count);
  for (std::string_view& text : texts) {
    if (!cursor_.ReadString(text))
      return EndsInside(fmt::format("the strings of key {}", Quote(key)));
  }
  value.value = std::move(texts);
  return {};
}

Status Parser::ReadNested(std::string_view key, int depth, uint64_t count, GgufValue& value) {
  if (depth >= kGgufMaxArrayDepth) {
    return Invalid("key {} nests arrays more than {} deep", Quote(key), kGgufMaxArrayDepth);
  }
  std::vector<GgufValue> arrays(count);
  for (GgufValue& array : arrays) {
    array.type = GgufType::kArray;
    LUCID_RETURN_IF_ERROR(ReadArray(key, depth + 1, array));
  }
  value.value = std::move(arrays);
  return {};
}

Status Parser::ReadArray(std::string_view key, int depth, GgufValue& value) {
  uint32_t element = 0;
  uint64_t count = 0;
  if (!cursor_.Read(element) || !cursor_.Read(count))
    return EndsInside(fmt::format("key {}", Quote(key)));
  if (MinBytes(element) == 0)
    return Invalid("key {} is an array of the unknown type {}", Quote(key), element);
  if (count > cursor_.left() / MinBytes(element)) {
    return Invalid("key {} promises {} array elements, more than the {} bytes left can hold",
                   Quote(key), count, cursor_.left());
  }
  value.element = static_cast<GgufType>(element);
  switch (value.element) {
    case GgufType::kUint8:
      ReadNumbers<uint8_t, uint64_t>(count, value);
      break;
    case GgufType::kInt8:
      ReadNumbers<int8_t, int64_t>(count, value);
      break;
    case GgufType::kUint16:
      ReadNumbers<uint16_t, uint64_t>(count, value);
      break;
    case GgufType::kInt16:
      ReadNumbers<int16_t, int64_t>(count, value);
      break;
    case GgufType::kUint32:
      ReadNumbers<uint32_t, uint64_t>(count, value);
      break;
    case GgufType::kInt32:
      ReadNumbers<int32_t, int64_t>(count, value);
      break;
    case GgufType::kFloat32:
      ReadNumbers<float, double>(count, value);
      break;
    case GgufType::kUint64:
      ReadNumbers<uint64_t, uint64_t>(count, value);
      break;
    case GgufType::kInt64:
      ReadNumbers<int64_t, int64_t>(count, value);
      break;
    case GgufType::kFloat64:
      ReadNumbers<double, double>(count, value);
      break;
    case GgufType::kBool:
      return ReadBools(key, count, value);
    case GgufType::kString:
      return ReadStrings(key, count, value);
    case GgufType::kArray:
      return ReadNested(key, depth, count, value);
  }
  return {};
}

Status Parser::ReadAlignment() {
  constexpr std::string_view kKey = "general.alignment";
  const auto entry = std::ranges::find(out_.metadata, kKey, &GgufEntry::key);
  if (entry == out_.metadata.end()) return {};
  if (entry->value.type != GgufType::kUint32 && entry->value.type != GgufType::kUint64) {
    return Invalid("key \"{}\" is of type {}, not uint32", kKey, GgufTypeName(entry->value.type));
  }
  const uint64_t alignment = std::get<uint64_t>(entry->value.value);
  if (!std::has_single_bit(alignment) || alignment < 8 || alignment > uint64_t{1} << 31) {
    return Invalid("key \"{}\" is {}; it must be a power of two from 8 on", kKey, alignment);
  }
  out_.alignment = static_cast<uint32_t>(alignment);
  return {};
}

Status Parser::ReadTensorTable(uint64_t n_tensors) {
  out_.tensors.resize(n_tensors);
  std::unordered_set<std::string_view> names;
  names.reserve(n_tensors);
  for (TensorEntry& entry : out_.tensors) {
    LUCID_RETURN_IF_ERROR(ReadTensor(entry));
    if (!names.insert(entry.name).second)
      return Invalid("tensor {} occurs twice", Quote(entry.name));
  }
  return {};
}

// One row of the table; `entry.offset` is still relative to the data section.
Status Parser::ReadTensor(TensorEntry& entry) {
  std::string_view name;
  if (!cursor_.ReadString(name)) return EndsInside("a tensor name");
  if (name.empty()) return Invalid("a tensor has an empty name");
  if (name.size() > kGgufMaxTensorNameBytes) {
    return Invalid("tensor {} has a name of {} bytes, more than {}", Quote(name), name.size(),
                   kGgufMaxTensorNameBytes);
  }
  if (name.find('\0') != std::string_view::npos) {
    return Invalid("tensor {} has a NUL byte in its name", Quote(name));
  }
  entry.name = name;
  LUCID_RETURN_IF_ERROR(ReadShape(entry));
  uint32_t type = 0;
  if (!cursor_.Read(type) || !cursor_.Read(entry.offset)) {
    return EndsInside(fmt::format("the table row of tensor {}", Quote(name)));
  }
  const std::optional<DType> dtype = DTypeFromGguf(type);
  if (!dtype) {
    return Err(ErrorCode::kUnsupported,
               "{}: tensor {} has the type number {}, which is removed or unknown", file_,
               Quote(name), type);
  }
  entry.tensor.dtype = *dtype;
  const int64_t block = Info(*dtype).block_elems;
  if (entry.tensor.cols() % block != 0) {
    return Invalid("tensor {} has rows of {} values, which {} blocks of {} do not divide",
                   Quote(name), entry.tensor.cols(), Info(*dtype).name, block);
  }
  return {};
}

// Rank and dimensions, the file's innermost-first order reversed; their product fits an int64.
Status Parser::ReadShape(TensorEntry& entry) {
  uint32_t rank = 0;
  if (!cursor_.Read(rank))
    return EndsInside(fmt::format("the table row of tensor {}", Quote(entry.name)));
  if (rank > kGgufMaxDims) {
    return Invalid("tensor {} has {} dimensions, more than {}", Quote(entry.name), rank,
                   kGgufMaxDims);
  }
  entry.tensor.rank = static_cast<int>(rank);
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t dim = 0;
    if (!cursor_.Read(dim))
      return EndsInside(fmt::format("the table row of tensor {}", Quote(entry.name)));
    if (dim == 0) return Invalid("tensor {} has a dimension of 0", Quote(entry.name));
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(dim), &elements)) {
      return Invalid("tensor {} has more elements than any file can hold", Quote(entry.name));
    }
    entry.tensor.shape[rank - 1 - i] = static_cast<int64_t>(dim);
  }
  return {};
}

// Checks each tensor's place against the file, and makes offsets count from the start of the file.
Status Parser::PlaceTensors() {
  if (out_.tensors.empty()) return {};
  const uint64_t mask = uint64_t{out_.alignment} - 1;
  const uint64_t data_start = (cursor_.position() + mask) & ~mask;
  if (data_start > bytes_.size()) {
    return Invalid("the file ends before its tensor data, which would start at byte {}",
                   data_start);
  }
  const uint64_t data_bytes = bytes_.size() - data_start;
  for (TensorEntry& entry : out_.tensors) {
    const DTypeInfo& info = Info(entry.tensor.dtype);
    int64_t bytes = 0;
    if (__builtin_mul_overflow(entry.tensor.elements() / info.block_elems, info.block_bytes,
                               &bytes)) {
      return Invalid("tensor {} has more bytes than any file can hold", Quote(entry.name));
    }
    if ((entry.offset & mask) != 0) {
      return Invalid("tensor {} has the offset {}, not a multiple of the alignment {}",
                     Quote(entry.name), entry.offset, out_.alignment);
    }
    if (entry.offset > data_bytes || static_cast<uint64_t>(bytes) > data_bytes - entry.offset) {
      return Invalid(
          "tensor {} ({} bytes at offset {}) ends after the file's {} data bytes; the file is cut "
          "short",
          Quote(entry.name), bytes, entry.offset, data_bytes);
    }
    entry.offset += data_start;
    entry.tensor.data = bytes_.data() + entry.offset;
  }
  return {};
}

Status Parser::CheckOverlap() const {
  std::vector<const TensorEntry*> by_offset;
  by_offset.reserve(out_.tensors.size());
  for (const TensorEntry& entry : out_.tensors) by_offset.push_back(&entry);
  std::ranges::sort(by_offset, {}, &TensorEntry::offset);
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorEntry& before = *by_offset[i - 1];
    if (by_offset[i]->offset - before.offset < static_cast<uint64_t>(before.tensor.bytes())) {
      return Invalid("tensors {} and {} overlap", Quote(before.name), Quote(by_offset[i]->name));
    }
  }
  return {};
}

}  // namespace

Result<ParsedGguf> ParseGguf(std::span<const std::byte> bytes, std::string_view file) {
  return Parser(bytes, file).Parse();
}

}  // namespace lucid
