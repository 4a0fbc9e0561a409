#include "models/weights.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/weight_sources.h"
#include "models/weight_stacks.h"

namespace lucid {
namespace {

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
  for (int64_t g = 0; g < groups.groups; ++g) {
    const int64_t first = g * groups.stride + groups.first;
    out = transposed ? CopyColumns(stored, stored.data, first, /*step=*/1, groups.count, out)
                     : std::copy_n(stored.row(first), groups.count * stored.row_bytes(), out);
  }
  return filled;
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
  return LoadedWeight{.tensor = stack->tensor,
                      .owned = std::move(stack->owned),
                      .parts = std::move(stack->parts),
                      .sources = std::move(stack->sources)};
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
    weight.sources = {entry};
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
  std::unordered_set<std::string_view> read;
  for (const Value v : plan.Weights()) {
    LUCID_ASSIGN_OR_RETURN(LoadedWeight filled,
                           LoadWeight(plan.Info(v), arch, config, checkpoint, contents));
    for (const TensorEntry* source : filled.sources) read.insert(source->name);
    const auto i = static_cast<size_t>(v.id);
    weights.tensors_[i] = filled.tensor;
    weights.dtypes_[i] = filled.tensor.dtype;
    weights.parts_[i] = std::move(filled.parts);
    weights.mapped_[i] = !filled.owned.has_value();
    if (filled.owned) weights.owned_.push_back(*std::move(filled.owned));
  }
  LUCID_ASSIGN_OR_RETURN(weights.passed_over_, SpareTensors(arch, config, checkpoint, read));
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
