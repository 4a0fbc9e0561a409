// The packed form of weight matrices: one layout, with the bytes of the file rearranged, that
// decode (few rows, weights streamed once) and prefill (panels) both read front to back.
//
// A matrix [n_out, n_in] is cut into strips of 16 rows (n_out padded with zero rows).
//
// Plain types: a strip is a sequence of words of 64 bytes (n_in padded with a zero column where it
// is odd and a word has two columns; packed_dense.h packs and reads them). A word holds
//   F32     a column: 16 floats
//   F16     two columns, one after the other
//   BF16    two columns side by side, row by row: what dot products of bfloat16 pairs and the tiles
//           of AMX read
//
// Quantised types: a strip is cut into tiles of 256 columns, the last one shorter where n_in is no
// multiple of 256. A tile is
//   the scales of its blocks, as many bits as the file has, padded to 64 bytes;
//   for each block of 32 columns its planes, `words` x 16 rows x 4 bytes.
// A plane word belongs to one row and holds bits of the columns 4g to 4g + 3 in its four bytes
// ("group g" of the block, g = 0 to 7), so that 64 bytes are the operand of a dot product of 16
// rows with 4 activations:
//   4 bits    words 0-3: group w in the low halves, group w + 4 in the high halves
//   1 bit     one word: bit g of a byte is group g's
//   2 bits    two words: bits 2g' of word h are group 4h + g'
//   8 bits    words 0-7: group w
// Scales, by type (16 rows each, little endian; s = sub-block, r = row):
//   d, or d and m        f16[blocks][16], then f16[blocks][16]
//   Q4_K, Q5_K           f16 d[16], dmin[16]; 6-bit scales and mins of 8 blocks (Packed6)
//   Q6_K                 f16 d[16]; int8[16 sub-blocks][16]
//   Q2_K                 f16 d[16], dmin[16]; bytes[16 sub-blocks][16]: scale low, min high
//   Q3_K                 f16 d[16]; 6-bit scales of 16 sub-blocks
//   IQ4_XS               f16 d[16]; 6-bit scales of 8 blocks
//   MXFP4                e8m0[blocks][16]
// 6-bit numbers of S sub-blocks: bytes low[S / 2][16], low half for s, high half for s + S / 2;
// then bytes high[S / 4][16], bits 2q for sub-block s + q * S / 4. Q4_K and Q5_K have the low parts
// of scales and of mins first, then high[4][16] with bits 0-1 scale s, 2-3 scale s + 4, 4-5 min s,
// 6-7 min s + 4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace lucid {

constexpr int kStripRows = 16;
constexpr int kPackedTile = 256;  // columns of a tile
constexpr int kPackedBlock = 32;  // columns of a block

constexpr int kPackedWord = 64;  // bytes of a plane word, or word of a plain type, of 16 rows

// How the numbers of a type lie in a packed matrix.
struct PackedForm {
  DType type = DType::kF32;
  int words = 0;  // plane words of a row's block; 0: a plain type
  // Bytes of the scales of a tile of `blocks` blocks, padding included.
  int64_t (*scale_bytes)(int64_t blocks) = nullptr;
  int columns = 0;  // of a word of a plain type

  bool plain() const { return columns > 0; }
  int64_t TileBytes(int64_t blocks) const {
    return scale_bytes(blocks) + blocks * words * kStripRows * 4;
  }
  int64_t StripBytes(int64_t n_in) const;
};
// nullptr: matrices of this type are used as they lie in the file.
const PackedForm* FindPackedForm(DType type);

// Whether the same kernels multiply with matrices of both types: both as they lie in the file, both
// packed blocks, or both packed plain types.
bool PackAlike(DType a, DType b);

// Bytes of the packed matrix; 0 where the type has no packed form.
int64_t PackedBytes(const Tensor& w);

// Packs the strips [begin, end) of `w` to their place in `packed`, the start of the whole matrix.
void PackStrips(const Tensor& w, int64_t begin, int64_t end, std::byte* packed);

// Row `row` of a packed matrix as n_in float32 values, the same bits as the codec of its type gives
// (tensor/dtype.h).
void DecodePackedRow(DType type, const std::byte* packed, int64_t n_in, int64_t row, float* dst);

}  // namespace lucid
