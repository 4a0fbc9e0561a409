#include "models/weights.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace lucid {
namespace {

struct Source {
  std::string tensor;
  Transform transform = Transform::kNone;
};

// "blk.12.attn_q" -> the name with "{}" in place of the layer number, and that number.
std::pair<std::string, std::string> SplitLayer(const std::string& slot) {
  if (!slot.starts_with("blk.")) return {slot, ""};
  const size_t end = slot.find('.', 4);
  return {"blk.{}" + slot.substr(end), slot.substr(4, end - 4)};
}

Result<Source> FindSource(const ArchSpec& arch, Checkpoint::Format format,
                          const std::string& slot) {
  if (format == Checkpoint::Format::kGguf) {
    return Source{slot.ends_with(".bias") ? slot : slot + ".weight", Transform::kNone};
  }
  const auto [pattern, layer] = SplitLayer(slot);
  for (const NameRule& rule : arch.hf_names) {
    if (rule.slot != pattern) continue;
    std::string name(rule.tensor);
    if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, layer);
    return Source{std::move(name), rule.transform};
  }
  return Err(ErrorCode::kUnsupported, "architecture {} has no name for {} in Hugging Face files",
             arch.name, slot);
}

bool ShapeFits(const Tensor& tensor, const Shape& shape) {
  if (tensor.rank != shape.rank) return false;
  for (int i = 0; i < shape.rank; ++i) {
    if (tensor.shape[i] != shape[i].size) return false;
  }
  return true;
}

std::string ShapeText(const Tensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.rank; ++i) text += (i ? ", " : "") + fmt::to_string(tensor.shape[i]);
  return text + "]";
}

// Alignment that loads of this type's elements need; block types are read bytewise.
size_t ElementAlignment(DType dtype) {
  return Info(dtype).block_elems == 1 ? static_cast<size_t>(Info(dtype).block_bytes) : 1;
}

bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % ElementAlignment(tensor.dtype) == 0;
}

Result<Buffer> ToFloat(const Tensor& tensor, Transform transform) {
  const int64_t n = tensor.elements();
  LUCID_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(static_cast<size_t>(n) * sizeof(float)));
  auto* values = reinterpret_cast<float*>(buffer.data());
  Info(tensor.dtype).decode(tensor.data, values, n);
  if (transform == Transform::kAddOne) {
    for (int64_t i = 0; i < n; ++i) values[i] += 1.0f;
  }
  return buffer;
}

// The tensors of a stack that the file keeps one by one: `pattern` with "{}" for the number. One
// tensor [n, n_out, n_in] that begins with the first, and where each lies.
struct Stack {
  Tensor tensor;
  std::vector<const std::byte*> parts;
};
Result<Stack> FindStack(const Checkpoint& checkpoint, const std::string& pattern,
                        const Shape& shape) {
  Stack stack;
  const size_t at = pattern.find("{}");
  for (int64_t i = 0; i < shape[0].size; ++i) {
    std::string name = pattern;
    name.replace(at, 2, std::to_string(i));
    const TensorEntry* entry = checkpoint.Find(name);
    if (entry == nullptr) return Err(ErrorCode::kInvalidFile, "tensor {} is missing", name);
    const Tensor& tensor = entry->tensor;
    if (!ShapeFits(tensor, Shape{shape[1], shape[2]})) {
      return Err(ErrorCode::kInvalidFile, "tensor {} has shape {}, the model's numbers want {}",
                 name, ShapeText(tensor), Shape{shape[1], shape[2]}.ToString());
    }
    if (i > 0 && tensor.dtype != stack.tensor.dtype) {
      return Err(ErrorCode::kUnsupported, "tensor {} has type {}, others of its stack have {}",
                 name, Name(tensor.dtype), Name(stack.tensor.dtype));
    }
    if (!IsAligned(tensor)) {
      return Err(ErrorCode::kUnsupported, "tensor {} does not lie on a multiple of {} bytes", name,
                 ElementAlignment(tensor.dtype));
    }
    if (i == 0) stack.tensor = tensor;
    stack.parts.push_back(tensor.data);
  }
  stack.tensor.rank = 3;
  stack.tensor.shape = {shape[0].size, shape[1].size, shape[2].size};
  return stack;
}

Status CheckType(const Tensor& tensor, const std::string& name) {
  if (Info(tensor.dtype).decode != nullptr && tensor.cols() % Info(tensor.dtype).block_elems == 0) {
    return {};
  }
  return Err(ErrorCode::kUnsupported,
             "tensor {} has type {}, which cannot be used as a weight here", name,
             Name(tensor.dtype));
}

}  // namespace

Result<Weights> Weights::Load(const Plan& plan, const ArchSpec& arch,
                              const Checkpoint& checkpoint) {
  Weights weights;
  weights.tensors_.resize(plan.values.size());
  weights.parts_.resize(plan.values.size());
  weights.dtypes_.assign(plan.values.size(), DType::kF32);
  weights.mapped_.assign(plan.values.size(), true);
  for (const Value v : plan.Weights()) {
    const ValueInfo& slot = plan.Info(v);
    LUCID_ASSIGN_OR_RETURN(const Source source, FindSource(arch, checkpoint.format(), slot.name));
    const auto id = static_cast<size_t>(v.id);
    if (slot.shape.rank == 3 && source.tensor.find("{}") != std::string::npos) {
      LUCID_ASSIGN_OR_RETURN(Stack stack, FindStack(checkpoint, source.tensor, slot.shape));
      LUCID_RETURN_IF_ERROR(CheckType(stack.tensor, source.tensor));
      weights.tensors_[id] = stack.tensor;
      weights.dtypes_[id] = stack.tensor.dtype;
      weights.parts_[id] = std::move(stack.parts);
      continue;
    }
    const TensorEntry* entry = checkpoint.Find(source.tensor);
    if (entry == nullptr)
      return Err(ErrorCode::kInvalidFile, "tensor {} is missing", source.tensor);
    Tensor tensor = entry->tensor;
    if (!ShapeFits(tensor, slot.shape)) {
      return Err(ErrorCode::kInvalidFile, "tensor {} has shape {}, the model's numbers want {}",
                 source.tensor, ShapeText(tensor), slot.shape.ToString());
    }
    LUCID_RETURN_IF_ERROR(CheckType(tensor, source.tensor));
    const bool as_float = slot.shape.rank == 1 || slot.name.ends_with(".bias") ||
                          source.transform != Transform::kNone;
    if ((as_float && (tensor.dtype != DType::kF32 || source.transform != Transform::kNone)) ||
        !IsAligned(tensor)) {
      Result<Buffer> copy = as_float ? ToFloat(tensor, source.transform)
                                     : Buffer::Allocate(static_cast<size_t>(tensor.bytes()));
      LUCID_RETURN_IF_ERROR(copy);
      if (as_float) {
        tensor.dtype = DType::kF32;
      } else {
        std::memcpy(copy->data(), tensor.data, static_cast<size_t>(tensor.bytes()));
      }
      tensor.data = copy->data();
      weights.owned_.push_back(*std::move(copy));
      weights.mapped_[id] = false;
    }
    weights.tensors_[id] = tensor;
    weights.dtypes_[id] = tensor.dtype;
    for (int64_t i = 0; slot.shape.rank == 3 && i < tensor.shape[0]; ++i) {
      weights.parts_[id].push_back(tensor.data + i * tensor.shape[1] * tensor.row_bytes());
    }
  }
  return weights;
}

}  // namespace lucid
