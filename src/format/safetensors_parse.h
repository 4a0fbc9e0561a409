// The two JSON parts of a safetensors checkpoint: a file's header, and the index of a sharded one.
//
// SafetensorsCheckpoint (safetensors.h) calls these; the fuzz target calls them on bytes in memory.
// Both read the JSON as a stream of events and keep only what they need, so memory stays near the
// size of the input. Source: the format page of the safetensors project.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "format/checkpoint.h"

namespace lucid {

inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;

struct ParsedSafetensors {
  std::vector<std::pair<std::string, std::string>> metadata;  // the pairs of "__metadata__"
  std::vector<TensorEntry> tensors;  // by offset; data points into the bytes
};

// The whole file `bytes`, which must outlive the result; `file` names it in errors. kInvalidFile:
// the bytes break the format; kUnsupported: a dtype or rank that this build has no place for.
Result<ParsedSafetensors> ParseSafetensors(std::span<const std::byte> bytes, std::string_view file);

// The text of an index.json: shard file name of each tensor. Shard names are checked to be plain
// file names.
Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text,
                                                                 std::string_view file);

// The name that safetensors uses for a type ("F32"), or an empty view where it has none.
std::string_view SafetensorsName(DType type);

}  // namespace lucid
