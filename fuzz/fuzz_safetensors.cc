// libFuzzer target of the safetensors parsers: a file's header, and the index of a sharded
// checkpoint. Any bytes must give a result or one sentence, and no tensor may lie outside the
// input.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "format/safetensors_parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (const auto parsed = lucid::ParseSafetensors(bytes, "fuzz")) {
    uint64_t sum = 0;
    for (const lucid::TensorEntry& entry : parsed->tensors) {
      const std::span<const std::byte> content(entry.tensor.data,
                                               static_cast<size_t>(entry.tensor.bytes()));
      for (const std::byte byte : content) sum += static_cast<uint64_t>(byte);
    }
    if (sum > 255 * uint64_t{size}) __builtin_trap();  // tensors do not overlap
  } else if (parsed.error().message.empty()) {
    __builtin_trap();
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = lucid::ParseSafetensorsIndex(text, "fuzz")) {
    for (const auto& [tensor, shard] : *index) {
      if (shard.find('/') != std::string::npos) __builtin_trap();
    }
  } else if (index.error().message.empty()) {
    __builtin_trap();
  }
  return 0;
}
