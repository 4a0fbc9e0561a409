#include "models/weight_stacks.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "models/weight_sources.h"
#include "tensor/blocks.h"

namespace lucid {
namespace {

// Of the `stored` rows of each matrix of the file (its columns, where it is transposed), every
// `step`th from `first` on, `count` of them.
struct Selection {
  int64_t stored = 0;
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
};

Selection SelectionOf(Rows rows, const Shape& slot, const ModelConfig& c) {
  const int64_t n = slot[1].size;
  const int64_t of_head = c.mla.nope + c.mla.v_dim;
  switch (rows) {
    case Rows::kFirstHalf:
      return {2 * n, 0, 1, n};
    case Rows::kSecondHalf:
      return {2 * n, n, 1, n};
    case Rows::kEven:
      return {2 * n, 0, 2, n};
    case Rows::kOdd:
      return {2 * n, 1, 2, n};
    case Rows::kHeadKeys:
      return {of_head, 0, 1, c.mla.nope};
    case Rows::kHeadValues:
      return {of_head, c.mla.nope, 1, c.mla.v_dim};
    default:
      return {n, 0, 1, n};
  }
}

Status CheckShape(const std::string& name, const Tensor& t, std::initializer_list<int64_t> want) {
  if (t.rank == std::ssize(want) && std::equal(want.begin(), want.end(), t.shape.begin()))
    return {};
  return tl::unexpected<Error>(Misfit(name, t, std::span(want.begin(), want.size())));
}

// The matrices of a stack as they lie in the file, each [rows, cols] of `shape`.
struct Stored {
  Tensor matrix;  // data unset
  std::vector<const std::byte*> parts;
  std::vector<const TensorEntry*> sources;
};

// One tensor for each matrix.
Result<std::optional<Stored>> FindEach(const Shape& slot, const std::string& pattern,
                                       std::initializer_list<int64_t> shape,
                                       const Checkpoint& checkpoint) {
  Stored stored;
  const size_t at = pattern.find("{}");
  for (int64_t i = 0; i < slot[0].size; ++i) {
    std::string name = pattern;
    name.replace(at, 2, std::to_string(i));
    const TensorEntry* entry = checkpoint.Find(name);
    if (entry == nullptr && i == 0) return std::nullopt;
    if (entry == nullptr) return Err(ErrorCode::kInvalidFile, "tensor {} is missing", name);
    LUCID_RETURN_IF_ERROR(CheckShape(name, entry->tensor, shape));
    if (i == 0) {
      stored.matrix = entry->tensor;
      LUCID_RETURN_IF_ERROR(CheckType(stored.matrix, name));
    } else if (entry->tensor.dtype != stored.matrix.dtype) {
      return Err(ErrorCode::kUnsupported, "tensor {} has type {}, others of its stack have {}",
                 name, Name(entry->tensor.dtype), Name(stored.matrix.dtype));
    }
    stored.parts.push_back(entry->tensor.data);
    stored.sources.push_back(entry);
  }
  return stored;
}

// One tensor of all.
Stored SplitStack(const TensorEntry* entry, int64_t n) {
  const Tensor& t = entry->tensor;
  Stored stored;
  stored.sources = {entry};
  stored.matrix = t;
  stored.matrix.rank = 2;
  stored.matrix.shape = {t.rows() / n, t.cols()};
  for (int64_t i = 0; i < n; ++i) stored.parts.push_back(t.data + i * stored.matrix.bytes());
  return stored;
}

// Keys of a head [lora, nope] from its rows [nope, lora], which may be quantised: float32 then.
void CopyKeys(const Tensor& matrix, const std::byte* data, const Selection& s, DType to,
              std::byte* out) {
  const int64_t lora = matrix.cols();
  const auto size = static_cast<size_t>(Info(to).block_bytes);
  std::vector<std::byte> row(static_cast<size_t>(lora) * size);
  for (int64_t n = 0; n < s.count; ++n) {
    const std::byte* from = data + (s.first + n) * matrix.row_bytes();
    if (to == matrix.dtype) {
      std::memcpy(row.data(), from, row.size());
    } else {
      Info(matrix.dtype).decode(from, reinterpret_cast<float*>(row.data()), lora);
    }
    for (int64_t l = 0; l < lora; ++l) {
      std::memcpy(out + static_cast<size_t>(l * s.count + n) * size,
                  row.data() + static_cast<size_t>(l) * size, size);
    }
  }
}

void CopyRows(const Tensor& matrix, const std::byte* data, const Selection& s, std::byte* out) {
  for (int64_t i = 0; i < s.count; ++i) {
    out = std::copy_n(data + (s.first + i * s.step) * matrix.row_bytes(), matrix.row_bytes(), out);
  }
}

// A tensor of blocks as GPT-OSS publishes them: 16 bytes of neighbouring pairs, low half first, and
// a scale by itself. Of the format's blocks byte i has numbers i and i + 16.
void CopyMxfp4(const std::byte* blocks, const std::byte* scales, int64_t n_blocks, std::byte* out) {
  const auto code = [](const std::byte* from, int i) {
    const auto byte = static_cast<uint8_t>(from[i / 2]);
    return static_cast<uint8_t>(i % 2 == 0 ? byte & 15u : byte >> 4);
  };
  for (int64_t b = 0; b < n_blocks; ++b) {
    *out++ = scales[b];
    for (int i = 0; i < 16; ++i) {
      const std::byte* from = blocks + b * 16;
      *out++ = static_cast<std::byte>(code(from, i) | code(from, i + 16) << 4);
    }
  }
}

Stack Owned(const Shape& slot, DType dtype, Buffer memory,
            std::vector<const TensorEntry*> sources) {
  Stack stack;
  stack.sources = std::move(sources);
  stack.tensor.dtype = dtype;
  stack.tensor.rank = 3;
  stack.tensor.shape = {slot[0].size, slot[1].size, slot[2].size};
  stack.tensor.data = memory.data();
  for (int64_t i = 0; i < slot[0].size; ++i) {
    stack.parts.push_back(stack.tensor.data + i * slot[1].size * stack.tensor.row_bytes());
  }
  stack.owned = std::move(memory);
  return stack;
}

Result<Buffer> StackMemory(const Shape& slot, DType dtype) {
  const int64_t rows = slot[0].size * slot[1].size;
  return Buffer::Allocate(static_cast<size_t>(rows * RowBytes(dtype, slot[2].size)));
}

Result<std::optional<Stack>> FindMxfp4(const Shape& slot, const std::string& name, Rows rows,
                                       const ModelConfig& c, const Checkpoint& checkpoint,
                                       Contents contents) {
  const TensorEntry* blocks = checkpoint.Find(name + "_blocks");
  const TensorEntry* scales = checkpoint.Find(name + "_scales");
  if (blocks == nullptr || scales == nullptr) return std::nullopt;
  const Selection s = SelectionOf(rows, slot, c);
  const int64_t in_row = slot[2].size / 32;
  if (slot[2].size % 32 != 0 || blocks->tensor.dtype != DType::kU8 ||
      scales->tensor.dtype != DType::kU8) {
    return Err(ErrorCode::kUnsupported, "tensor {}_blocks is not made of MXFP4 blocks", name);
  }
  LUCID_RETURN_IF_ERROR(
      CheckShape(name + "_blocks", blocks->tensor, {slot[0].size, s.stored, in_row, 16}));
  LUCID_RETURN_IF_ERROR(
      CheckShape(name + "_scales", scales->tensor, {slot[0].size, s.stored, in_row}));
  LUCID_ASSIGN_OR_RETURN(Buffer memory, StackMemory(slot, DType::kMXFP4));
  std::byte* out = memory.data();
  for (int64_t i = 0; contents == Contents::kRead && i < slot[0].size; ++i) {
    for (int64_t r = 0; r < s.count; ++r, out += RowBytes(DType::kMXFP4, slot[2].size)) {
      const int64_t row = i * s.stored + s.first + r * s.step;
      CopyMxfp4(blocks->tensor.data + row * in_row * 16, scales->tensor.data + row * in_row, in_row,
                out);
    }
  }
  return Owned(slot, DType::kMXFP4, std::move(memory), {blocks, scales});
}

// The matrices that a tensor, or a tensor each, gives in the shape that the rule wants.
Result<std::optional<Stored>> FindStored(const Shape& slot, const std::string& name,
                                         Transform transform, Rows rows, const ModelConfig& c,
                                         const Checkpoint& checkpoint) {
  if (name.find("{}") != std::string::npos) {
    return FindEach(slot, name, {slot[1].size, slot[2].size}, checkpoint);
  }
  const TensorEntry* entry = checkpoint.Find(name);
  if (entry == nullptr) return std::nullopt;
  const Tensor& t = entry->tensor;
  const int64_t n = slot[0].size;
  const Selection s = SelectionOf(rows, slot, c);
  if (rows == Rows::kHeadKeys || rows == Rows::kHeadValues) {
    const int64_t lora = rows == Rows::kHeadKeys ? slot[1].size : slot[2].size;
    LUCID_RETURN_IF_ERROR(CheckShape(name, t, {n * s.stored, lora}));
  } else {
    if (transform == Transform::kTranspose) {
      LUCID_RETURN_IF_ERROR(CheckShape(name, t, {n, slot[2].size, s.stored}));
    } else {
      LUCID_RETURN_IF_ERROR(CheckShape(name, t, {n, s.stored, slot[2].size}));
    }
  }
  LUCID_RETURN_IF_ERROR(CheckType(t, name));
  return SplitStack(entry, n);
}

}  // namespace

Result<std::optional<Stack>> FindStack(const Shape& slot, const std::string& name,
                                       Transform transform, Rows rows, const ModelConfig& c,
                                       const Checkpoint& checkpoint, Contents contents) {
  if (transform == Transform::kMxfp4) return FindMxfp4(slot, name, rows, c, checkpoint, contents);
  LUCID_ASSIGN_OR_RETURN(std::optional<Stored> stored,
                         FindStored(slot, name, transform, rows, c, checkpoint));
  if (!stored) return std::nullopt;
  const Tensor& matrix = stored->matrix;
  const bool transposed = transform == Transform::kTranspose;
  const bool plain = Info(matrix.dtype).block_elems == 1;
  if (transposed && !plain) {
    return Err(ErrorCode::kUnsupported, "tensor {} is stored transposed in blocks of {}", name,
               Name(matrix.dtype));
  }
  const Selection s = SelectionOf(rows, slot, c);
  const size_t alignment = plain ? static_cast<size_t>(Info(matrix.dtype).block_bytes) : 1;
  const bool aligned = std::ranges::all_of(stored->parts, [alignment](const std::byte* part) {
    return reinterpret_cast<uintptr_t>(part) % alignment == 0;
  });
  const bool keys = rows == Rows::kHeadKeys;
  if (!transposed && !keys && s.step == 1 && aligned) {
    Stack stack;
    stack.tensor = matrix;
    stack.tensor.rank = 3;
    stack.tensor.shape = {slot[0].size, slot[1].size, slot[2].size};
    for (const std::byte* part : stored->parts) {
      stack.parts.push_back(part + s.first * matrix.row_bytes());
    }
    stack.tensor.data = stack.parts.front();
    stack.sources = std::move(stored->sources);
    return stack;
  }
  const DType dtype = keys && !plain ? DType::kF32 : matrix.dtype;
  LUCID_ASSIGN_OR_RETURN(Buffer memory, StackMemory(slot, dtype));
  std::byte* out = memory.data();
  for (const std::byte* part : stored->parts) {
    if (contents == Contents::kNone) break;
    if (keys) {
      CopyKeys(matrix, part, s, dtype, out);
    } else if (transposed) {
      CopyColumns(matrix, part, s.first, s.step, s.count, out);
    } else {
      CopyRows(matrix, part, s, out);
    }
    out += slot[1].size * RowBytes(dtype, slot[2].size);
  }
  return Owned(slot, dtype, std::move(memory), std::move(stored->sources));
}

Result<std::optional<Stack>> FindStackBias(const Shape& slot, const std::string& name, Rows rows,
                                           const ModelConfig& c, const Checkpoint& checkpoint,
                                           Contents contents) {
  const TensorEntry* entry = checkpoint.Find(name);
  if (entry == nullptr) return std::nullopt;
  const Tensor& t = entry->tensor;
  const Selection s = SelectionOf(rows, slot, c);
  LUCID_RETURN_IF_ERROR(CheckShape(name, t, {slot[0].size, s.stored}));
  LUCID_RETURN_IF_ERROR(CheckType(t, name));
  const auto floats = static_cast<size_t>(slot[0].size * slot[1].size);
  LUCID_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(floats * sizeof(float)));
  auto* out = reinterpret_cast<float*>(memory.data());
  std::vector<float> row(static_cast<size_t>(s.stored));
  for (int64_t i = 0; contents == Contents::kRead && i < slot[0].size; ++i) {
    Info(t.dtype).decode(t.row(i), row.data(), s.stored);
    for (int64_t r = 0; r < s.count; ++r) *out++ = row[static_cast<size_t>(s.first + r * s.step)];
  }
  Stack stack;
  stack.tensor.rank = 2;
  stack.tensor.shape = {slot[0].size, slot[1].size};
  stack.sources = {entry};
  stack.tensor.data = memory.data();
  stack.owned = std::move(memory);
  return stack;
}

}  // namespace lucid
