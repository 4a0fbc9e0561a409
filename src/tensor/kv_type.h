// KvType: how keys and values are stored in the cache, with the codecs of each form.
//
// Row types store every vector (one head's key or value of one position) for itself: a block holds
// `block_size` rows one after the other. Kivi2 keys are the exception: they are quantised per
// channel over the positions of a whole block, so a block is encoded at once, when it is complete.
// Scales lie in the rows and are counted in every byte figure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lucid {

enum class KvType : int8_t {
  kF32,
  kF16,
  kBF16,
  kInt8,  // row: dim int8, then for each group of 32 a float16 scale (largest magnitude / 127,
          // rounded up)
  kFp8,   // row: dim E4M3 (OCP 8-bit floating point, no infinities), then one float16 scale, chosen
          // for the least squared error
  kInt4,  // row: groups of 32 values: float16 scale and minimum, then 4-bit codes in b bytes, byte
          // i those of values i and i + b
  kInt2,  // the same with 2-bit codes, byte i those of values i, i + b, i + 2b and i + 3b (what
          // kivi2 is compared with)
  kKivi2,  // KIVI (Liu et al. 2024, arXiv 2402.02750): keys 2 bit per channel over a block, values
           // 2 bit per position (as kInt2), the newest kKiviResidual positions in float16
};

// Positions that kivi2 keeps in full precision, at least: a block is quantised for the queries at
// positions p with p + 1 - kKiviResidual >= end of the block (the paper's R).
constexpr int64_t kKiviResidual = 128;
// Values that share a scale in kInt8, kInt4 and kInt2 rows; the last group of a row may be shorter.
constexpr int64_t kKvGroup = 32;

std::string_view Name(KvType type);  // "f32", "f16", "bf16", "int8", "fp8", "int4", "int2", "kivi2"
std::optional<KvType> KvTypeFromName(std::string_view name);
// All of them, in order, for help texts and tests.
std::span<const KvType> AllKvTypes();

// True where each position's vector is stored for itself (all but kivi2 keys).
constexpr bool IsRowType(KvType type) {
  return type != KvType::kKivi2;
}

// Bytes of one vector of `dim` values; for kKivi2 of a value (keys have no rows).
int64_t KvRowBytes(KvType type, int64_t dim);
// Bytes that one head's keys (or values) take in a block of `block_size` positions. For row types
// block_size * KvRowBytes; kivi2 keys: per channel block_size 2-bit codes, scale and minimum.
int64_t KvHeadBytes(KvType type, bool keys, int64_t dim, int64_t block_size);

// One vector. `type` must be a row type or kKivi2 (a value). Rounding is to nearest, ties to even.
void EncodeKvRow(KvType type, const float* src, std::byte* dst, int64_t dim);
void DecodeKvRow(KvType type, const std::byte* src, float* dst, int64_t dim);

// Kivi2 keys of one head: `block_size` (a multiple of 4) vectors of `dim` values, rows `stride`
// floats apart. Layout: dim float16 scales, dim float16 minimums, then block_size/4 rows of dim
// bytes; byte c of row r holds the codes of channel c at positions 4r to 4r + 3, lowest bits first.
void EncodeKiviKeys(const float* src, int64_t stride, std::byte* dst, int64_t dim,
                    int64_t block_size);
void DecodeKiviKeys(const std::byte* src, float* dst, int64_t stride, int64_t dim,
                    int64_t block_size);

}  // namespace lucid
