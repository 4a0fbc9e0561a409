// The codec functions that dtype.cc puts into its table, one pair per type; each family has its own
// file.
//
// All take whole blocks: `n` is a multiple of the block's values. Decoding follows the fixed order
// of float32 operations of the format's reference, so results are equal to it bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/blocks.h"

namespace lucid::codecs {

// Lifts a function on one block to the DecodeFn of a row of blocks.
template <typename Block, int kValues, void (*kDecode)(const Block&, float*)>
void DecodeBlocks(const std::byte* src, float* dst, int64_t n) {
  const auto* blocks = reinterpret_cast<const Block*>(src);
  for (int64_t i = 0; i < n / kValues; ++i) kDecode(blocks[i], dst + i * kValues);
}
// The same for the EncodeFn.
template <typename Block, int kValues, void (*kEncode)(const float*, Block&)>
void EncodeBlocks(const float* src, std::byte* dst, int64_t n) {
  auto* blocks = reinterpret_cast<Block*>(dst);
  for (int64_t i = 0; i < n / kValues; ++i) kEncode(src + i * kValues, blocks[i]);
}

// plain.cc
void DecodeF32(const std::byte* src, float* dst, int64_t n);
void EncodeF32(const float* src, std::byte* dst, int64_t n);
void DecodeF16(const std::byte* src, float* dst, int64_t n);
void EncodeF16(const float* src, std::byte* dst, int64_t n);
void DecodeBF16(const std::byte* src, float* dst, int64_t n);
void EncodeBF16(const float* src, std::byte* dst, int64_t n);
void DecodeF64(const std::byte* src, float* dst, int64_t n);
void EncodeF64(const float* src, std::byte* dst, int64_t n);
void DecodeF8E4M3(const std::byte* src, float* dst, int64_t n);
void DecodeF8E5M2(const std::byte* src, float* dst, int64_t n);
void DecodeI8(const std::byte* src, float* dst, int64_t n);
void DecodeI16(const std::byte* src, float* dst, int64_t n);
void DecodeI32(const std::byte* src, float* dst, int64_t n);
void DecodeI64(const std::byte* src, float* dst, int64_t n);
void DecodeU8(const std::byte* src, float* dst, int64_t n);
// legacy.cc
void DecodeQ4_0(const std::byte* src, float* dst, int64_t n);
void EncodeQ4_0(const float* src, std::byte* dst, int64_t n);
void DecodeQ4_1(const std::byte* src, float* dst, int64_t n);
void EncodeQ4_1(const float* src, std::byte* dst, int64_t n);
void DecodeQ5_0(const std::byte* src, float* dst, int64_t n);
void EncodeQ5_0(const float* src, std::byte* dst, int64_t n);
void DecodeQ5_1(const std::byte* src, float* dst, int64_t n);
void EncodeQ5_1(const float* src, std::byte* dst, int64_t n);
void DecodeQ8_0(const std::byte* src, float* dst, int64_t n);
void EncodeQ8_0(const float* src, std::byte* dst, int64_t n);
void DecodeQ8_1(const std::byte* src, float* dst, int64_t n);
// kquants.cc
void DecodeQ2_K(const std::byte* src, float* dst, int64_t n);
void DecodeQ3_K(const std::byte* src, float* dst, int64_t n);
void DecodeQ4_K(const std::byte* src, float* dst, int64_t n);
void DecodeQ5_K(const std::byte* src, float* dst, int64_t n);
void DecodeQ6_K(const std::byte* src, float* dst, int64_t n);
void DecodeQ8_K(const std::byte* src, float* dst, int64_t n);
// iquants.cc
void DecodeIQ2_XXS(const std::byte* src, float* dst, int64_t n);
void DecodeIQ2_XS(const std::byte* src, float* dst, int64_t n);
void DecodeIQ2_S(const std::byte* src, float* dst, int64_t n);
void DecodeIQ3_XXS(const std::byte* src, float* dst, int64_t n);
void DecodeIQ3_S(const std::byte* src, float* dst, int64_t n);
void DecodeIQ1_S(const std::byte* src, float* dst, int64_t n);
void DecodeIQ1_M(const std::byte* src, float* dst, int64_t n);
void DecodeIQ4_NL(const std::byte* src, float* dst, int64_t n);
void DecodeIQ4_XS(const std::byte* src, float* dst, int64_t n);
// ternary.cc
void DecodeTQ1_0(const std::byte* src, float* dst, int64_t n);
void EncodeTQ1_0(const float* src, std::byte* dst, int64_t n);
void DecodeTQ2_0(const std::byte* src, float* dst, int64_t n);
void EncodeTQ2_0(const float* src, std::byte* dst, int64_t n);
// fp4.cc
void DecodeMXFP4(const std::byte* src, float* dst, int64_t n);
void EncodeMXFP4(const float* src, std::byte* dst, int64_t n);
void DecodeNVFP4(const std::byte* src, float* dst, int64_t n);

}  // namespace lucid::codecs
