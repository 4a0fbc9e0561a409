// What may fill a slot of a plan: names of tensors, which of their rows, and the shapes that they
// must have. Used by weights.cc and weight_stacks.cc, which read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/checkpoint.h"
#include "models/arch.h"
#include "models/model_config.h"
#include "models/names.h"
#include "plan/dim.h"

namespace lucid {

// A tensor that may fill a slot.
struct Source {
  std::string tensor;
  Transform transform = Transform::kNone;
  Rows rows = Rows::kAll;
};

// What may fill the slot, best first.
std::vector<Source> SourcesOf(const ArchSpec& arch, Checkpoint::Format format,
                              const std::string& slot);
// The tensors of which the file has none: "a.weight", or "a.weight (or b.weight, ...)".
std::string NamesOf(std::span<const Source> sources);
// Also under its name without the prefix of ArchSpec; nullptr where absent.
const TensorEntry* FindTensor(const ArchSpec& arch, const Checkpoint& checkpoint,
                              std::string_view name);

// Of every `stride` rows of a stored tensor, the `count` rows from `first` on.
struct RowGroups {
  int64_t groups = 1;
  int64_t stride = 0;
  int64_t first = 0;
  int64_t count = 0;

  int64_t stored_rows() const { return groups * stride; }
};

RowGroups GroupsOf(Rows rows, const ModelConfig& c, int64_t slot_rows);

// The shape in which the file must store the source of a slot; of kFlatten, only its elements.
std::vector<int64_t> StoredShape(const Source& source, const RowGroups& groups, const Shape& slot);
bool ShapeFits(const Tensor& tensor, const Source& source, const std::vector<int64_t>& shape);
Error Misfit(const std::string& name, const Tensor& stored, std::span<const int64_t> wanted);
// kUnsupported unless the tensor's type can be that of a weight.
Status CheckType(const Tensor& tensor, const std::string& name);

// Of a matrix of plain numbers [n_in, ...] at `data`, every `step`th column from `first` on,
// `count` of them, as rows at `out`. Returns their end.
std::byte* CopyColumns(const Tensor& matrix, const std::byte* data, int64_t first, int64_t step,
                       int64_t count, std::byte* out);

}  // namespace lucid
