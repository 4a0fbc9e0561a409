// DType: the element types of tensors, and one row of facts and codecs for each (DTypeInfo).
//
// The enum values are GGUF's own type numbers, so files need no mapping. Adding a type: a POD in
// blocks.h, a codec in codecs/<family>.cc, a value here and a row in dtype.cc; loader, generic
// kernels, `lucid show` and quantise follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lucid {

enum class DType : int32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  // Types of safetensors files that GGUF has no number for.
  kU8 = 100,
  kBool = 101,
  kF8E4M3 = 102,
  kF8E5M2 = 103,
};
inline constexpr int32_t kFirstDTypeNotInGguf = 100;

// Decodes `n` values (a multiple of block_elems) from `src` into `dst`.
using DecodeFn = void (*)(const std::byte* src, float* dst, int64_t n);
// Encodes `n` values (a multiple of block_elems) of `src` into `dst`.
using EncodeFn = void (*)(const float* src, std::byte* dst, int64_t n);

struct DTypeInfo {
  DType type;
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  int64_t block_elems;    // values in a block; 1 for plain types
  int64_t block_bytes;    // bytes of a block
  DecodeFn decode;        // nullptr where values are not numbers a weight can have
  EncodeFn encode;        // nullptr where this build cannot write the type
};

// The row of `type`. `type` must be one of the enum's values.
const DTypeInfo& Info(DType type);
// All rows, in the order of the enum.
std::span<const DTypeInfo> AllDTypes();
// The row with this GGUF type number, or nothing (removed and unknown numbers).
std::optional<DType> DTypeFromGguf(uint32_t id);
// By name, ignoring case: "q4_k", "BF16".
std::optional<DType> DTypeFromName(std::string_view name);

inline std::string_view Name(DType type) {
  return Info(type).name;
}
// Bytes of `n` consecutive values; n must be a multiple of block_elems.
inline int64_t RowBytes(DType type, int64_t n) {
  return n / Info(type).block_elems * Info(type).block_bytes;
}

}  // namespace lucid
