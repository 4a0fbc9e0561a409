// ParseGguf: the bytes of one GGUF file to its metadata and tensor table. GgufFile (gguf.h) calls
// it for each part of a model; the fuzz target calls it on bytes in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/checkpoint.h"
#include "format/gguf.h"

namespace lucid {

// Limits of the specification, or ours where it sets none.
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;
inline constexpr uint64_t kGgufMaxTensorNameBytes = 64;
inline constexpr uint32_t kGgufMaxDims = 4;
inline constexpr int kGgufMaxArrayDepth = 4;  // arrays of arrays of ...; real files use 1

struct ParsedGguf {
  uint32_t version = 0;
  uint32_t alignment = 32;
  std::vector<GgufEntry> metadata;   // views `bytes`
  std::vector<TensorEntry> tensors;  // data points into `bytes`; shard is 0
};

// `bytes` must outlive the result. `file` names it in errors. kInvalidFile: the bytes break the
// format; kUnsupported: version 1, a future version, big-endian, or a tensor type that this build
// does not know.
Result<ParsedGguf> ParseGguf(std::span<const std::byte> bytes, std::string_view file);

}  // namespace lucid
