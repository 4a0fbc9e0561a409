// ConvertModel: a Hugging Face folder as one GGUF file that Lucid and llama.cpp read: `lucid
// convert`.
//
// models/gguf_export.h says what the file holds of the model, tokenizer_export.h of the tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace lucid {

struct ConvertOptions {
  std::optional<DType> type = {};  // of the matrices: F32, F16, BF16 or Q8_0; nothing: as stored
  bool overwrite = false;
  // Bytes of tensors; may be empty.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

struct ConvertReport {
  std::string architecture = {};  // as the file names it
  int64_t tensors = 0;
  uint64_t bytes = 0;                   // of the tensors
  std::vector<std::string> notes = {};  // what the file does otherwise, a sentence each
  double seconds = 0;
};

// Reads the folder and writes `file`, which appears under its name only when it is complete.
// kInvalidArgument: `folder` is a GGUF file, or `file` exists; kUnsupported names what GGUF cannot
// say or this build cannot write; kInvalidFile, kIo. Memory: the largest tensor.
Result<ConvertReport> ConvertModel(const std::string& folder, const std::string& file,
                                   const ConvertOptions& options);

}  // namespace lucid
