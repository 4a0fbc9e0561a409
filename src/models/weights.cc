#include "models/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/weight_stacks.h"

namespace lucid {
namespace {

// A tensor that may fill a slot.
struct Source {
  std::string tensor;
  Transform transform = Transform::kNone;
  Rows rows = Rows::kAll;
};

// "blk.12.attn_q" -> the name with "{}" in place of the layer number, and that number.
std::pair<std::string, std::string> SplitLayer(const std::string& slot) {
  if (!slot.starts_with("blk.")) return {slot, ""};
  const size_t end = slot.find('.', 4);
  return {"blk.{}" + slot.substr(end), slot.substr(4, end - 4)};
}

// What may fill the slot, best first.
std::vector<Source> SourcesOf(const ArchSpec& arch, Checkpoint::Format format,
                              const std::string& slot) {
  const auto [pattern, layer] = SplitLayer(slot);
  std::vector<Source> sources;
  const auto add_rules = [&, &pattern = pattern, &layer = layer](NameTable rules) {
    for (const NameRule& rule : rules) {
      if (rule.slot != pattern) continue;
      std::string name(rule.tensor);
      if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, layer);
      sources.push_back({std::move(name), rule.transform, rule.rows});
    }
  };
  if (format == Checkpoint::Format::kGguf) {
    sources.push_back({.tensor = slot.ends_with(".bias") ? slot : slot + ".weight"});
    add_rules(names::kGguf);
  } else {
    for (const NameTable& table : arch.hf_names) add_rules(table);
  }
  return sources;
}

// Of every `stride` rows of a stored tensor, the `count` rows from `first` on.
struct RowGroups {
  int64_t groups = 1;
  int64_t stride = 0;
  int64_t first = 0;
  int64_t count = 0;

  int64_t stored_rows() const { return groups * stride; }
};

RowGroups GroupsOf(Rows rows, const ModelConfig& c, int64_t slot_rows) {
  const int64_t q = c.n_heads * c.head_dim;
  const int64_t kv = c.n_kv_heads * c.head_dim;
  const int64_t group_q = q / c.n_kv_heads;
  const int64_t group = group_q + 2 * c.head_dim;
  switch (rows) {
    case Rows::kAll:
      return {1, slot_rows, 0, slot_rows};
    case Rows::kQ:
      return {1, q + 2 * kv, 0, q};
    case Rows::kK:
      return {1, q + 2 * kv, q, kv};
    case Rows::kV:
      return {1, q + 2 * kv, q + kv, kv};
    case Rows::kGroupQ:
      return {c.n_kv_heads, group, 0, group_q};
    case Rows::kGroupK:
      return {c.n_kv_heads, group, group_q, c.head_dim};
    case Rows::kGroupV:
      return {c.n_kv_heads, group, group_q + c.head_dim, c.head_dim};
    case Rows::kFirstHalf:
      return {1, 2 * slot_rows, 0, slot_rows};
    case Rows::kSecondHalf:
      return {1, 2 * slot_rows, slot_rows, slot_rows};
    case Rows::kLatent:
      return {1, slot_rows + c.mla.rope, 0, slot_rows};
    case Rows::kRotated:
      return {1, c.mla.kv_lora + slot_rows, c.mla.kv_lora, slot_rows};
    case Rows::kEven:
    case Rows::kOdd:
    case Rows::kHeadKeys:
    case Rows::kHeadValues:
      break;  // of stacks only: weight_stacks.cc
  }
  return {};
}

// The shape in which the file must store the source of a slot; of kFlatten, only its elements.
std::vector<int64_t> StoredShape(const Source& source, const RowGroups& groups, const Shape& slot) {
  std::vector<int64_t> shape{groups.stored_rows()};
  for (int i = 1; i < slot.rank; ++i) shape.push_back(slot[i].size);
  if (source.transform == Transform::kTranspose) std::reverse(shape.begin(), shape.end());
  return shape;
}

bool ShapeFits(const Tensor& tensor, const Source& source, const std::vector<int64_t>& shape) {
  if (source.transform == Transform::kFlatten) {
    return tensor.elements() ==
           std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  return tensor.rank == std::ssize(shape) &&
         std::equal(shape.begin(), shape.end(), tensor.shape.begin());
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Alignment that loads of this type's elements need; block types are read bytewise.
size_t ElementAlignment(DType dtype) {
  return Info(dtype).block_elems == 1 ? static_cast<size_t>(Info(dtype).block_bytes) : 1;
}

bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % ElementAlignment(tensor.dtype) == 0;
}

// Vectors and biases are float32 for every kernel. `slot`: [n], or [E, n] for the biases of
// experts.
Result<LoadedWeight> FillFloats(const Tensor& stored, const Source& source, const RowGroups& groups,
                                const Shape& slot, Contents contents) {
  LoadedWeight filled{.tensor = stored};
  Tensor& tensor = filled.tensor;
  tensor.rank = slot.rank;
  for (int i = 0; i < slot.rank; ++i) tensor.shape[i] = slot[i].size;
  const int64_t unit = tensor.elements() / tensor.shape[0];
  const bool as_stored = stored.dtype == DType::kF32 && source.transform != Transform::kAddOne;
  if (as_stored && groups.groups == 1 && IsAligned(stored)) {
    tensor.data = stored.data + groups.first * unit * static_cast<int64_t>(sizeof(float));
    return filled;
  }
  const auto bytes = static_cast<size_t>(tensor.elements()) * sizeof(float);
  LUCID_ASSIGN_OR_RETURN(filled.owned, Buffer::Allocate(bytes));
  tensor.data = filled.owned->data();
  tensor.dtype = DType::kF32;
  if (contents == Contents::kNone) return filled;
  std::vector<float> values(static_cast<size_t>(stored.elements()));
  Info(stored.dtype).decode(stored.data, values.data(), stored.elements());
  auto* const weight = reinterpret_cast<float*>(filled.owned->data());
  float* out = weight;
  for (int64_t g = 0; g < groups.groups; ++g) {
    const float* from = values.data() + (g * groups.stride + groups.first) * unit;
    out = std::copy_n(from, groups.count * unit, out);
  }
  if (source.transform == Transform::kAddOne) {
    for (int64_t i = 0; i < tensor.elements(); ++i) weight[i] += 1.0f;
  }
  return filled;
}

// Columns of the stored matrix [n_in, ...] as rows.
void CopyTransposed(const Tensor& stored, const RowGroups& groups, std::byte* out) {
  const auto size = static_cast<size_t>(Info(stored.dtype).block_bytes);
  const int64_t n_in = stored.shape[0];
  for (int64_t g = 0; g < groups.groups; ++g) {
    for (int64_t i = 0; i < groups.count; ++i) {
      const std::byte* column =
          stored.data + static_cast<size_t>(g * groups.stride + groups.first + i) * size;
      for (int64_t r = 0; r < n_in; ++r, out += size) {
        std::memcpy(out, column + r * stored.row_bytes(), size);
      }
    }
  }
}

// Matrices keep their type. Rows that follow each other stay in the file.
Result<LoadedWeight> FillMatrix(const Tensor& stored, const Source& source, const RowGroups& groups,
                                Contents contents) {
  const bool transposed = source.transform == Transform::kTranspose;
  if (transposed && Info(stored.dtype).block_elems != 1) {
    return Err(ErrorCode::kUnsupported, "tensor {} is stored transposed in blocks of {}",
               source.tensor, Name(stored.dtype));
  }
  LoadedWeight filled{.tensor = stored};
  Tensor& tensor = filled.tensor;
  tensor.rank = 2;
  tensor.shape = {groups.groups * groups.count, transposed ? stored.shape[0] : stored.cols()};
  tensor.data = stored.data + groups.first * stored.row_bytes();
  if (!transposed && groups.groups == 1 && IsAligned(tensor)) return filled;
  LUCID_ASSIGN_OR_RETURN(filled.owned, Buffer::Allocate(static_cast<size_t>(tensor.bytes())));
  std::byte* out = filled.owned->data();
  tensor.data = out;
  if (contents == Contents::kNone) return filled;
  if (transposed) {
    CopyTransposed(stored, groups, out);
  } else {
    for (int64_t g = 0; g < groups.groups; ++g) {
      const std::byte* from = stored.row(g * groups.stride + groups.first);
      out = std::copy_n(from, groups.count * stored.row_bytes(), out);
    }
  }
  return filled;
}

Status CheckType(const Tensor& tensor, const std::string& name) {
  if (Info(tensor.dtype).decode != nullptr && tensor.cols() % Info(tensor.dtype).block_elems == 0) {
    return {};
  }
  return Err(ErrorCode::kUnsupported,
             "tensor {} has type {}, which cannot be used as a weight here", name,
             Name(tensor.dtype));
}

Error Misfit(const std::string& name, const Tensor& stored, const std::vector<int64_t>& wanted) {
  const std::span<const int64_t> is(stored.shape.data(), static_cast<size_t>(stored.rank));
  return {ErrorCode::kInvalidFile,
          fmt::format("tensor {} has shape {}, the model's numbers want {}", name, ShapeText(is),
                      ShapeText(wanted))};
}

Result<LoadedWeight> FillFrom(const Tensor& stored, const Source& source, const RowGroups& groups,
                              const ValueInfo& slot, Contents contents) {
  if (slot.shape.rank == 1 || slot.name.ends_with(".bias")) {
    return FillFloats(stored, source, groups, slot.shape, contents);
  }
  return FillMatrix(stored, source, groups, contents);
}

// Matrices and biases of experts, matrices of heads; nothing if the file lacks the source.
Result<std::optional<LoadedWeight>> FillStack(const Source& source, const Shape& slot,
                                              const ModelConfig& config,
                                              const Checkpoint& checkpoint, Contents contents) {
  LUCID_ASSIGN_OR_RETURN(std::optional<Stack> stack,
                         slot.rank == 3 ? FindStack(slot, source.tensor, source.transform,
                                                    source.rows, config, checkpoint, contents)
                                        : FindStackBias(slot, source.tensor, source.rows, config,
                                                        checkpoint, contents));
  if (!stack) return std::nullopt;
  return LoadedWeight{
      .tensor = stack->tensor, .owned = std::move(stack->owned), .parts = std::move(stack->parts)};
}

const TensorEntry* FindTensor(const ArchSpec& arch, const Checkpoint& checkpoint,
                              std::string_view name) {
  const TensorEntry* entry = checkpoint.Find(name);
  if (entry != nullptr || arch.hf_prefix.empty() || !name.starts_with(arch.hf_prefix)) return entry;
  return checkpoint.Find(name.substr(arch.hf_prefix.size()));
}

// The tensors of which the file has none: "a.weight", or "a.weight (or b.weight, ...)".
std::string NamesOf(std::span<const Source> sources) {
  std::vector<std::string> names;
  const auto add = [&](std::string name) {
    if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, "0");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Source& source : sources) {
    if (source.transform == Transform::kMxfp4) {
      add(source.tensor + "_blocks and " + source.tensor + "_scales");
    } else {
      add(source.tensor);
    }
  }
  if (names.size() == 1) return names[0];
  return fmt::format("{} (or {})", names[0], fmt::join(std::span(names).subspan(1), ", "));
}

LoadedWeight From(const Source& source, LoadedWeight weight) {
  weight.transform = source.transform;
  weight.rows = source.rows;
  return weight;
}

}  // namespace

// The first source of a slot that the file has in the shape wanted. If there is none, the error
// speaks of the first that is there in another shape, and of the names before it.
Result<LoadedWeight> LoadWeight(const ValueInfo& slot, const ArchSpec& arch,
                                const ModelConfig& config, const Checkpoint& checkpoint,
                                Contents contents) {
  const std::vector<Source> sources = SourcesOf(arch, checkpoint.format(), slot.name);
  if (sources.empty()) {
    return Err(ErrorCode::kUnsupported, "architecture {} has no name for {} in Hugging Face files",
               arch.name, slot.name);
  }
  std::optional<Error> misfit;
  for (const Source& source : sources) {
    if (slot.shape.rank == 3 || (slot.shape.rank == 2 && slot.name.ends_with(".bias"))) {
      LUCID_ASSIGN_OR_RETURN(std::optional<LoadedWeight> stack,
                             FillStack(source, slot.shape, config, checkpoint, contents));
      if (!stack) continue;
      return From(source, *std::move(stack));
    }
    const TensorEntry* entry = FindTensor(arch, checkpoint, source.tensor);
    if (entry == nullptr) continue;
    const RowGroups groups = GroupsOf(source.rows, config, slot.shape[0].size);
    const std::vector<int64_t> shape = StoredShape(source, groups, slot.shape);
    if (!ShapeFits(entry->tensor, source, shape)) {
      if (misfit) continue;
      misfit = Misfit(source.tensor, entry->tensor, shape);
      if (source.tensor != sources.front().tensor) {  // which says why this one was looked at
        misfit->message =
            fmt::format("tensor {} is missing, and {}", sources.front().tensor, misfit->message);
      }
      continue;
    }
    LUCID_RETURN_IF_ERROR(CheckType(entry->tensor, source.tensor));
    LUCID_ASSIGN_OR_RETURN(LoadedWeight weight,
                           FillFrom(entry->tensor, source, groups, slot, contents));
    return From(source, std::move(weight));
  }
  if (misfit) return tl::unexpected<Error>(*misfit);
  return Err(ErrorCode::kInvalidFile, "tensor {} is missing", NamesOf(sources));
}

Result<Weights> Weights::Load(const Plan& plan, const ArchSpec& arch, const ModelConfig& config,
                              const Checkpoint& checkpoint, Contents contents) {
  Weights weights;
  weights.tensors_.resize(plan.values.size());
  weights.parts_.resize(plan.values.size());
  weights.dtypes_.assign(plan.values.size(), DType::kF32);
  weights.mapped_.assign(plan.values.size(), true);
  for (const Value v : plan.Weights()) {
    LUCID_ASSIGN_OR_RETURN(LoadedWeight filled,
                           LoadWeight(plan.Info(v), arch, config, checkpoint, contents));
    const auto i = static_cast<size_t>(v.id);
    weights.tensors_[i] = filled.tensor;
    weights.dtypes_[i] = filled.tensor.dtype;
    weights.parts_[i] = std::move(filled.parts);
    weights.mapped_[i] = !filled.owned.has_value();
    if (filled.owned) weights.owned_.push_back(*std::move(filled.owned));
  }
  return weights;
}

Result<Weights> Weights::Outline(const Plan& plan, std::span<const DType> dtypes,
                                 const FillFn& fill) {
  Weights weights;
  weights.tensors_.resize(plan.values.size());
  weights.parts_.resize(plan.values.size());
  weights.dtypes_.assign(dtypes.begin(), dtypes.end());
  weights.mapped_.assign(plan.values.size(), true);
  for (const Value v : plan.Weights()) {
    const auto i = static_cast<size_t>(v.id);
    const Shape& shape = plan.Info(v).shape;
    Tensor& tensor = weights.tensors_[i];
    tensor.rank = shape.rank;
    for (int d = 0; d < shape.rank; ++d) tensor.shape[static_cast<size_t>(d)] = shape[d].size;
    tensor.dtype = dtypes[i];
    if (shape.rank == 3) weights.parts_[i].assign(static_cast<size_t>(shape[0].size), nullptr);
    // Binding looks into vectors: rope factors become tables.
    if (!fill && shape.rank > 1 && !plan.Info(v).name.ends_with(".bias")) continue;
    LUCID_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(static_cast<size_t>(tensor.bytes())));
    tensor.data = memory.data();
    weights.mapped_[i] = false;
    for (size_t n = 0; n < weights.parts_[i].size(); ++n) {
      weights.parts_[i][n] =
          memory.data() + static_cast<int64_t>(n) * tensor.bytes() / shape[0].size;
    }
    if (fill) fill(plan.Info(v), tensor, memory.data());
    weights.owned_.push_back(std::move(memory));
  }
  return weights;
}

int64_t Weights::owned_bytes() const {
  int64_t bytes = 0;
  for (const Buffer& buffer : owned_) bytes += static_cast<int64_t>(buffer.size());
  return bytes;
}

}  // namespace lucid
