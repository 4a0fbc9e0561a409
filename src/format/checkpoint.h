// Checkpoint: the one view of a model on disk, whatever its format: metadata and named tensors.
//
// Tensors point into read-only maps owned by the checkpoint, which must outlive them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace lucid {

struct TensorEntry {
  std::string name;
  Tensor tensor;        // shape outermost first (GGUF stores it innermost first)
  int shard = 0;        // index of the file in files()
  uint64_t offset = 0;  // of the data, from the start of that file, bytes
};

class Checkpoint {
 public:
  enum class Format { kGguf, kSafetensors };
  virtual ~Checkpoint() = default;

  virtual Format format() const = 0;
  virtual std::span<const TensorEntry> tensors() const = 0;          // in file order
  virtual const TensorEntry* Find(std::string_view name) const = 0;  // nullptr where absent
  virtual std::span<const std::string> files() const = 0;            // paths of the mapped files
  virtual uint64_t file_bytes() const = 0;                           // sum of their sizes
};

// Opens what `path` names: a .gguf file (the first part of a split one opens all parts), a
// .safetensors file, a model.safetensors.index.json, or a folder that holds a Hugging Face
// checkpoint.
Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path);

}  // namespace lucid
