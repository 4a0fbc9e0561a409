// Activations of packed weights: how they are rounded and where they lie. Shared by the kernels of
// all instruction sets; everything is `static` or constexpr (ADR 0003).
//
// A block of 32 activations of a row has a scale s = max|x| / 127 and one or two planes of signed
// bytes: x = s * (high + low / 128) with high = round(x / s), low = round((x / s - high) * 128). A
// dot product with small integer weights is then an exact integer, so its bits do not depend on how
// many rows are computed together, and with both planes an activation has some 15 bits.
//
// A row has the low plane only in blocks whose rounding error without it would exceed the block's
// share of the row's error budget (LinearArgs::error_budget); elsewhere it is zero and skipped: see
// docs/adr/0010-two-planes.md. Which blocks have one depends on the row alone.
//
// Rows are packed in tiles of `tile` rows, the last one of fewer. A tile is a sequence of blocks,
// each a PlaneBlock of its number of rows, so that the four activations of every row that meet a
// plane word lie side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args.h"
#include "kernels/packed.h"

namespace lucid {

// Sums over columns 0-15, 16-31 and all of a block.
enum PlaneSum { kFirstHalf, kSecondHalf, kWholeBlock, kPlaneSums };

template <int kRows>
struct PlaneBlock {
  float scale[kRows];            // s; s / 128 where the row has a low plane
  float sum[kPlaneSums][kRows];  // of the rounded activations
  // Minus the sums of the planes: times what is taken off of every weight, they are where a dot
  // product with the weights starts.
  int32_t minus_high[kPlaneSums][kRows];
  int32_t minus_low[kPlaneSums][kRows];
  uint32_t low_rows;  // bit r: row r has a low plane; what others have in its place is undefined
  int8_t high[8][kRows][4];
  int8_t low[8][kRows][4];
};
constexpr int64_t kPlaneBlockRowBytes = 104;
constexpr int64_t kPlaneBlockFixedBytes = 4;
static_assert(sizeof(PlaneBlock<1>) == kPlaneBlockRowBytes + kPlaneBlockFixedBytes);
static_assert(sizeof(PlaneBlock<6>) == 6 * kPlaneBlockRowBytes + kPlaneBlockFixedBytes);

static constexpr int64_t PlaneBlockBytes(int64_t rows) {
  return rows * kPlaneBlockRowBytes + kPlaneBlockFixedBytes;
}
// Bytes of `rows` rows of n_in activations in tiles of `tile`.
static constexpr int64_t PlaneBytes(int64_t rows, int64_t n_in, int64_t tile) {
  const int64_t blocks = n_in / kPackedBlock;
  return blocks * (rows / tile * PlaneBlockBytes(tile) +
                   (rows % tile > 0 ? PlaneBlockBytes(rows % tile) : 0));
}

}  // namespace lucid
