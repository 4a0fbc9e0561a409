// Weights: the tensor that fills every weight slot of a plan (names.h says which, and which rows of
// it). Matrices stay where they lie in the mapped file if their rows follow each other there; what
// is transposed or gathered is a copy of its type, vectors are small float32 copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "format/checkpoint.h"
#include "models/arch.h"
#include "models/spare_tensors.h"
#include "plan/plan.h"
#include "tensor/tensor.h"

namespace lucid {

// Whether copies of weights hold their numbers, or only take their place: enough to count with,
// and no weight is read.
enum class Contents : int8_t { kRead, kNone };

// The tensor of one slot.
struct LoadedWeight {
  Tensor tensor;
  std::optional<Buffer> owned = {};          // its memory, if it does not lie in the mapped file
  std::vector<const std::byte*> parts = {};  // of a stack [n, n_out, n_in]: where each lies
  Transform transform = Transform::kNone;    // of the stored tensor that filled the slot, ...
  Rows rows = Rows::kAll;                    // ... and which of its rows did
  std::vector<const TensorEntry*> sources = {};  // that tensor, or those of a stack
};

// For those who do not need all at once; errors as Weights::Load.
Result<LoadedWeight> LoadWeight(const ValueInfo& slot, const ArchSpec& arch,
                                const ModelConfig& config, const Checkpoint& checkpoint,
                                Contents contents = Contents::kRead);

class Weights {
 public:
  // Finds, checks and where needed converts the tensor of every slot. kInvalidFile names the tensor
  // that is missing, has another shape than the plan declares, or a dtype no kernel can read;
  // kUnsupported one that nothing reads (spare_tensors.h). The checkpoint must outlive the weights.
  static Result<Weights> Load(const Plan& plan, const ArchSpec& arch, const ModelConfig& config,
                              const Checkpoint& checkpoint, Contents contents = Contents::kRead);
  // Weights of these types (by value id; vectors are float32) without a checkpoint: what a model
  // would be made of. Without `fill` only vectors have memory; it writes the numbers of a weight to
  // `data`, which are zero before. kCapacity.
  using FillFn = std::function<void(const ValueInfo& slot, const Tensor& weight, std::byte* data)>;
  static Result<Weights> Outline(const Plan& plan, std::span<const DType> dtypes,
                                 const FillFn& fill = {});

  // The tensor of a weight value of that plan.
  const Tensor& operator[](Value v) const { return tensors_[static_cast<size_t>(v.id)]; }
  // Where each matrix of a stack [n, n_out, n_in] lies: a GGUF file has one tensor of all, Hugging
  // Face files mostly a tensor for each.
  std::span<const std::byte* const> parts(Value v) const {
    return parts_[static_cast<size_t>(v.id)];
  }
  // Whether that tensor lies in the mapped file, else in memory of these weights.
  bool mapped(Value v) const { return mapped_[static_cast<size_t>(v.id)]; }
  // Bytes of the copies.
  int64_t owned_bytes() const;
  // Tensors of the checkpoint that no weight is made of.
  const std::vector<SpareTensor>& passed_over() const { return passed_over_; }
  // By value id of the plan; kF32 for values that are no weights.
  const std::vector<DType>& dtypes() const { return dtypes_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<const std::byte*>> parts_;  // empty but for stacks
  std::vector<DType> dtypes_;
  std::vector<bool> mapped_;
  std::vector<Buffer> owned_;
  std::vector<SpareTensor> passed_over_;
};

}  // namespace lucid
