// safetensors reader over mmap: one file, or the shards that a model.safetensors.index.json names.
//
// Untrusted input, checked like GGUF; shard names must be plain file names inside the folder. A
// folder also gives its config.json, which hf_config.h reads. WriteSafetensors writes any type that
// the format has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  uint64_t file_bytes() const override { return file_bytes_; }
  // The string pairs of "__metadata__" of the first file.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }
  const std::string& folder() const { return folder_; }  // where config.json and tokenizer.json lie

 private:
  SafetensorsCheckpoint() = default;
  Status OpenIndex(const std::string& path);
  // `wanted`: sorted names of the tensors to take, all of which must be there; nullptr for all.
  Status OpenShard(const std::string& path, const std::vector<std::string_view>* wanted);
  void BuildIndex();

  std::string folder_;
  std::vector<MmapFile> maps_;
  std::vector<std::string> paths_;
  uint64_t file_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;  // views the names of tensors_
};

// One tensor to write; the data must stay valid until WriteSafetensors returns.
struct SafetensorsTensor {
  std::string name;
  Tensor tensor;
};

// Writes a .safetensors file, through a temporary file and a rename. kIo names the path and cause.
Status WriteSafetensors(const std::string& path, std::span<const SafetensorsTensor> tensors);

}  // namespace lucid
