// SpareTensors: the tensors of a checkpoint that no weight of its model is made of. Used by
// weights.cc and gguf_export.cc; `lucid show` lists them.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "format/checkpoint.h"
#include "models/arch.h"

namespace lucid {

// A tensor that is passed over, and what it is: a phrase, "a mask of earlier versions".
struct SpareTensor {
  std::string name;
  std::string_view reason;
};

// Every tensor that is not among `read`, in file order. kUnsupported names the first that may not
// be passed over: the model is then not what its config says, or one that this build does not know.
Result<std::vector<SpareTensor>> SpareTensors(const ArchSpec& arch, const ModelConfig& config,
                                              const Checkpoint& checkpoint,
                                              const std::unordered_set<std::string_view>& read);

}  // namespace lucid
