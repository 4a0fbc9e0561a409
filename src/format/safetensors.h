// safetensors reader over mmap: one file, or the shards that a model.safetensors.index.json names.
//
// Untrusted input, checked like GGUF; shard names must be plain file names inside the folder. A folder also
// gives its config.json, which hf_config.h reads. SafetensorsWriter writes float32 and int32 tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mmap_file.h"
#include "base/result.h"
#include "format/checkpoint.h"

namespace lucid {

class SafetensorsCheckpoint final : public Checkpoint {
 public:
  // `path`: a .safetensors file, an index.json, or a folder with either.
  static Result<std::unique_ptr<SafetensorsCheckpoint>> Open(const std::string& path);

  Format format() const override { return Format::kSafetensors; }
  std::span<const TensorEntry> tensors() const override { return tensors_; }
  const TensorEntry* Find(std::string_view name) const override;
  std::span<const std::string> files() const override { return paths_; }
  uint64_t file_bytes() const override;
  const std::string& folder() const { return folder_; }  // where config.json and tokenizer.json lie

 private:
  std::string folder_;
  std::vector<MmapFile> maps_;
  std::vector<std::string> paths_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
};

// One tensor to write; the data must stay valid until WriteSafetensors returns.
struct SafetensorsTensor {
  std::string name;
  Tensor tensor;
};

// Writes a .safetensors file, through a temporary file and a rename. kIo names the path and cause.
Status WriteSafetensors(const std::string& path, std::span<const SafetensorsTensor> tensors);

}  // namespace lucid
