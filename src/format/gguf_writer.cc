#include "format/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "format/gguf_parse.h"
#include "format/quote.h"

namespace lucid {
namespace {

constexpr uint32_t kVersion = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";

template <typename T>
void Append(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendString(std::string& out, std::string_view text) {
  Append(out, uint64_t{text.size()});
  out.append(text);
}

// A number kept as `value` in the width of `type`.
template <typename T>
void AppendNumber(std::string& out, GgufType type, T value) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return Append(out, static_cast<uint8_t>(value));
    case GgufType::kInt8:
      return Append(out, static_cast<int8_t>(value));
    case GgufType::kUint16:
      return Append(out, static_cast<uint16_t>(value));
    case GgufType::kInt16:
      return Append(out, static_cast<int16_t>(value));
    case GgufType::kUint32:
      return Append(out, static_cast<uint32_t>(value));
    case GgufType::kInt32:
      return Append(out, static_cast<int32_t>(value));
    case GgufType::kFloat32:
      return Append(out, static_cast<float>(value));
    case GgufType::kUint64:
      return Append(out, static_cast<uint64_t>(value));
    case GgufType::kInt64:
      return Append(out, static_cast<int64_t>(value));
    case GgufType::kFloat64:
      return Append(out, static_cast<double>(value));
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  LUCID_CHECK(false, "a number of type {}", GgufTypeName(type));
}

// Appends the payload of a value: what follows its type number.
class Encoder {
 public:
  explicit Encoder(std::string& out) : out_(out) {}

  // False where arrays nest too deep.
  bool Encode(const GgufValue& value, int depth) {
    if (value.is_array()) {
      if (depth >= kGgufMaxArrayDepth) return false;
      Append(out_, static_cast<uint32_t>(value.element));
      Append(out_, uint64_t{value.array_size()});
    }
    return std::visit([&](const auto& held) { return EncodeHeld(held, value, depth); },
                      value.value);
  }

 private:
  template <typename T>
  bool EncodeHeld(const T& number, const GgufValue& value, int) {
    AppendNumber(out_, value.type, number);
    return true;
  }
  bool EncodeHeld(std::string_view text, const GgufValue&, int) {
    AppendString(out_, text);
    return true;
  }
  template <typename T>
  bool EncodeHeld(const std::vector<T>& numbers, const GgufValue& value, int) {
    for (const T number : numbers) AppendNumber(out_, value.element, number);
    return true;
  }
  bool EncodeHeld(const std::vector<std::string_view>& texts, const GgufValue&, int) {
    for (const std::string_view text : texts) AppendString(out_, text);
    return true;
  }
  bool EncodeHeld(const std::vector<GgufValue>& arrays, const GgufValue&, int depth) {
    for (const GgufValue& array : arrays) {
      if (!Encode(array, depth + 1)) return false;
    }
    return true;
  }

  std::string& out_;
};

}  // namespace

Status GgufWriter::Add(std::string_view key, const GgufValue& value) {
  if (key.empty() || key.size() > kGgufMaxKeyBytes) {
    return Err(ErrorCode::kInvalidArgument, "a metadata key must have 1 to {} bytes, not {}",
               kGgufMaxKeyBytes, key.size());
  }
  if (key == kAlignmentKey) {
    const auto* number = std::get_if<uint64_t>(&value.value);
    if (number == nullptr || value.type != GgufType::kUint32 || !std::has_single_bit(*number) ||
        *number < 8) {
      return Err(ErrorCode::kInvalidArgument, "\"{}\" must be a uint32 power of two from 8 on",
                 kAlignmentKey);
    }
    alignment_ = *number;
  }
  std::string encoded;
  Append(encoded, static_cast<uint32_t>(value.type));
  if (!Encoder(encoded).Encode(value, 0)) {
    return Err(ErrorCode::kInvalidArgument, "key {} nests arrays more than {} deep", Quote(key),
               kGgufMaxArrayDepth);
  }
  const auto [found, added] = pair_index_.emplace(key, pairs_.size());
  if (added) {
    pairs_.push_back({std::string(key), std::move(encoded)});
  } else {
    pairs_[found->second].encoded = std::move(encoded);
  }
  return {};
}

Status GgufWriter::AddString(std::string_view key, std::string_view value) {
  return Add(key, {.type = GgufType::kString, .element = {}, .value = value});
}
Status GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  return Add(key, {.type = GgufType::kUint32, .element = {}, .value = uint64_t{value}});
}
Status GgufWriter::AddFloat32(std::string_view key, float value) {
  return Add(key, {.type = GgufType::kFloat32, .element = {}, .value = double{value}});
}
Status GgufWriter::AddBool(std::string_view key, bool value) {
  return Add(key, {.type = GgufType::kBool, .element = {}, .value = uint64_t{value}});
}

Status GgufWriter::AddTensor(std::string_view name, DType type, std::span<const int64_t> shape) {
  if (name.empty() || name.size() > kGgufMaxTensorNameBytes ||
      name.find('\0') != std::string_view::npos) {
    return Err(ErrorCode::kInvalidArgument, "a tensor name must have 1 to {} bytes and no NUL: {}",
               kGgufMaxTensorNameBytes, Quote(name));
  }
  if (static_cast<int32_t>(type) >= kFirstDTypeNotInGguf) {
    return Err(ErrorCode::kInvalidArgument, "tensor {} is {}, which GGUF cannot hold", Quote(name),
               Name(type));
  }
  if (shape.size() > kGgufMaxDims) {
    return Err(ErrorCode::kInvalidArgument, "tensor {} has {} dimensions, more than {}",
               Quote(name), shape.size(), kGgufMaxDims);
  }
  const DTypeInfo& info = Info(type);
  int64_t bytes = info.block_bytes;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t units = i + 1 == shape.size() ? shape[i] / info.block_elems : shape[i];
    if (shape[i] <= 0 || __builtin_mul_overflow(bytes, units, &bytes)) {
      return Err(ErrorCode::kInvalidArgument, "tensor {} has the dimension {}", Quote(name),
                 shape[i]);
    }
  }
  const int64_t cols = shape.empty() ? 1 : shape.back();
  if (cols % info.block_elems != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "tensor {} has rows of {} values, which {} blocks of {} do not divide", Quote(name),
               cols, info.name, info.block_elems);
  }
  if (!tensor_index_.emplace(name, tensors_.size()).second) {
    return Err(ErrorCode::kInvalidArgument, "two tensors are named {}", Quote(name));
  }
  tensors_.push_back(
      {std::string(name), type, {shape.begin(), shape.end()}, static_cast<uint64_t>(bytes), 0});
  return {};
}

Status GgufWriter::Begin(const std::string& path) {
  LUCID_CHECK(!file_, "Begin is called once");
  LUCID_ASSIGN_OR_RETURN(file_, OutputFile::Create(path));
  std::string head = "GGUF";
  Append(head, kVersion);
  Append(head, uint64_t{tensors_.size()});
  Append(head, uint64_t{pairs_.size()});
  for (const Pair& pair : pairs_) {
    AppendString(head, pair.key);
    head += pair.encoded;
  }
  uint64_t offset = 0;
  for (Declared& tensor : tensors_) {
    tensor.offset = offset;
    offset = (offset + tensor.bytes + alignment_ - 1) / alignment_ * alignment_;
    AppendString(head, tensor.name);
    Append(head, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;)
      Append(head, static_cast<uint64_t>(tensor.shape[i]));
    Append(head, static_cast<uint32_t>(tensor.type));
    Append(head, tensor.offset);
  }
  LUCID_RETURN_IF_ERROR(file_->Write(head));
  return tensors_.empty() ? Status() : file_->Pad(alignment_);
}

Status GgufWriter::Write(std::span<const std::byte> bytes) {
  LUCID_CHECK(file_.has_value(), "Write follows Begin");
  while (!bytes.empty()) {
    LUCID_CHECK(current_ < tensors_.size(), "more bytes than the declared tensors have");
    const uint64_t wanted = tensors_[current_].bytes - written_;
    const auto piece = bytes.first(std::min<uint64_t>(wanted, bytes.size()));
    LUCID_RETURN_IF_ERROR(file_->Write(piece));
    written_ += piece.size();
    bytes = bytes.subspan(piece.size());
    if (written_ == tensors_[current_].bytes) {
      LUCID_RETURN_IF_ERROR(file_->Pad(alignment_));
      ++current_;
      written_ = 0;
    }
  }
  return {};
}

Status GgufWriter::Finish() {
  LUCID_CHECK(file_.has_value(), "Finish follows Begin");
  if (current_ < tensors_.size()) {
    return Err(ErrorCode::kInvalidArgument, "tensor {} got {} of its {} bytes",
               Quote(tensors_[current_].name), written_, tensors_[current_].bytes);
  }
  return file_->Commit();
}

}  // namespace lucid
