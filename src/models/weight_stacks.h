// Stacks of matrices [n, n_out, n_in], one for every expert or head: where a checkpoint keeps them.
// Used by weights.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "format/checkpoint.h"
#include "models/model_config.h"
#include "models/names.h"
#include "models/weights.h"
#include "plan/dim.h"
#include "tensor/tensor.h"

namespace lucid {

struct Stack {
  Tensor tensor;                            // [n, n_out, n_in]; data is that of the first matrix
  std::vector<const std::byte*> parts;      // where each of the n matrices lies
  std::optional<Buffer> owned;              // their memory, if they do not lie in the file
  std::vector<const TensorEntry*> sources;  // the tensors that they are made of
};

// The stack that a rule's tensor gives, whose name has "{}" where the file keeps every matrix by
// itself. Matrices and parts of them that are contiguous in the file stay there; others are copied,
// once. Nothing if the checkpoint lacks the tensor; kInvalidFile if it has another shape than
// `slot` and the rule want, kUnsupported if its type cannot be used. `contents`: of copies.
Result<std::optional<Stack>> FindStack(const Shape& slot, const std::string& tensor,
                                       Transform transform, Rows rows, const ModelConfig& c,
                                       const Checkpoint& checkpoint, Contents contents);

// The biases of a stack, float32 [n, n_out]: as above.
Result<std::optional<Stack>> FindStackBias(const Shape& slot, const std::string& tensor, Rows rows,
                                           const ModelConfig& c, const Checkpoint& checkpoint,
                                           Contents contents);

}  // namespace lucid
