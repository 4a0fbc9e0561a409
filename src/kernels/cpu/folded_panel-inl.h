// Panels of packed weights with scales folded into their numbers: a strip's rows, a slice of
// columns at a time, as bytes with one scale a row, and rows of activations, a chunk of columns at
// a time, as bytes with one scale. So the inner loop is nothing but dot products. Entry points:
// RoundFoldedRow, FindFold, kFoldedTiles. Used by folded_linear-inl.h, which tells when.
//
// A slice is all columns where they are at most 1024, else 512, and a chunk 128 of them; the last
// of each is what is left. Of a slice
//   L = the largest magnitude that a row's scales allow, u = L / 127
//   w = u * p, p = round(128.5 + value / u) - 128.5, rounded as FoldCodes (dot_*.h) tells
//   f = fma(float(sum of p * q), scale of the activations, f)      an exact sum; chunks ascending
//   y = fma(f, u, y)                                               slices ascending
// from zero, whatever the number of rows.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/packed_tile-inl.h"
#include "kernels/cpu/planes-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kChunkBlocks = 4;
constexpr int64_t kChunkColumns = kChunkBlocks * kPackedBlock;
static_assert(8 % kChunkBlocks == 0);

// With the rows of a tile, a panel's slice of up to 1024 columns stays in the first-level cache.
// Where there are more slices, sums of all rows wait beside them in the second, which 512 leave
// room for.
constexpr int64_t kMaxSliceTiles = 4;
inline int64_t SliceTiles(int64_t blocks) {
  return blocks <= kMaxSliceTiles * 8 ? kMaxSliceTiles : kMaxSliceTiles / 2;
}

// --- activations ---

// A tile of R rows is a sequence of chunks: float scale[R]; int32 start[R]; int8 q[R][columns].
// `start` is what a sum begins with, since bytes of weights have 128 added: -128 * sum of q.
constexpr int64_t kChunkHeadBytes = 8;  // of a row
inline int64_t FoldedRowBytes(int64_t n_in) {
  const int64_t chunks = (n_in + kChunkColumns - 1) / kChunkColumns;
  return (n_in + chunks * kChunkHeadBytes + 63) / 64 * 64;
}

// Rounds `columns` values at x: the scale, and the bytes to q. Returns the sum of the bytes. A
// value that is no number makes the scale none either.
inline int32_t RoundChunk(const float* x, int64_t columns, float* scale, int8_t* q) {
  F largest = Zero();
  F nothing = Zero();  // stays zero unless a value is not finite
  for (int64_t i = 0; i < columns; i += kLanes) {
    const F v = Load(x + i);
    largest = Max(largest, Abs(v));
    nothing = Fma(v, Zero(), nothing);
  }
  const float most = MaxLane(largest);
  const bool finite = SumOfIntegers(nothing) == 0.0f;
  const bool zero = !finite || most < kSmallest;
  const F inverse = Set(zero ? 0.0f : kHighest / most);
  F sum = Zero();
  for (int64_t i = 0; i < columns; i += kLanes) {
    const F v = zero ? Zero() : Round(Load(x + i) * inverse);
    StoreI8(q + i, v);
    sum = sum + v;
  }
  *scale = !finite ? __builtin_nanf("") : zero ? 0.0f : most / kHighest;
  return static_cast<int32_t>(SumOfIntegers(sum));
}

// Row `r` of a tile of `rows` rows.
inline void RoundFoldedRow(const float* x, int64_t n_in, int64_t r, int64_t rows, uint8_t* tile) {
  for (int64_t k = 0; k < n_in; k += kChunkColumns) {
    const int64_t columns = Least(kChunkColumns, n_in - k);
    float scale;
    const int32_t sum =
        RoundChunk(x + k, columns, &scale,
                   reinterpret_cast<int8_t*>(tile) + kChunkHeadBytes * rows + r * columns);
    const int32_t start = -128 * sum;
    memcpy(tile + 4 * r, &scale, sizeof(scale));
    memcpy(tile + 4 * (rows + r), &start, sizeof(start));
    tile += rows * (kChunkHeadBytes + columns);
  }
}

// --- weights ---

// A panel: float units[kStripTile][16], then of each block [8 groups][kStripTile] bytes of 16 rows.
constexpr int64_t kFoldedBlockBytes = 8 * kStripTile * kPlaneBytes;
constexpr int64_t kFoldedUnitBytes = kStripTile * 16 * 4;
constexpr int64_t kFoldedPanelBytes = kFoldedUnitBytes + kMaxSliceTiles * 8 * kFoldedBlockBytes;

inline Floats LargerMagnitude(const Floats& largest, const Floats& x) {
  Floats out;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVectors; ++i) out.v[i] = Max(largest.v[i], Abs(x.v[i]));
  return out;
}

// The largest magnitude of a row's values; NaN where a scale is not finite.
template <typename T>
inline Floats LargestOf(const float* scale, const float* add, int64_t sub_blocks) {
  constexpr int kLargest = T::kOffset > 0 ? T::kOffset : T::kLargest;
  const Floats most = SetFloats(static_cast<float>(kLargest));
  const Floats zero = ZeroFloats();
  Floats largest = zero;
  Floats nothing = zero;
  for (int64_t s = 0; s < sub_blocks; ++s) {
    const Floats d = LoadFloats(scale + 16 * s);
    nothing = FmaFloats(d, zero, nothing);
    if constexpr (T::kAdds) {
      const Floats m = LoadFloats(add + 16 * s);
      nothing = FmaFloats(m, zero, nothing);
      largest = LargerMagnitude(LargerMagnitude(largest, m), FmaFloats(d, most, m));
    } else {
      largest = LargerMagnitude(largest, Multiply(d, most));
    }
  }
  return FmaFloats(SetFloats(1.0f), largest, nothing);
}

// 256 / unit, or 0 for rows of zeros.
inline Floats InverseUnits(const Floats& largest) {
  Floats out;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVectors; ++i) {
    out.v[i] = IfLess(largest.v[i], Set(kSmallest), Zero(), Set(256 * kHighest) / largest.v[i]);
  }
  return out;
}

template <typename T, int kGroup>
[[gnu::always_inline]] inline void FoldGroups(const uint8_t* planes, const Factors* factors,
                                              uint8_t* to) {
  if constexpr (kGroup < 8) {
    constexpr int kSub = T::kSubBlocks == 2 ? kGroup / 4 : 0;
    StoreBytes(to + kGroup * kStripTile * kPlaneBytes,
               FoldCodes(Operand<T, kGroup>(planes), factors[kSub]));
    FoldGroups<T, kGroup + 1>(planes, factors, to);
  }
}

constexpr int64_t kFoldPrefetchBytes = 2048;  // how far ahead of the planes in use

// Tiles [begin, end) of a strip, a slice, to place `v` of a panel.
template <typename T>
void FoldTiles(const uint8_t* strip, const StripShape& shape, int64_t begin, int64_t end, int v,
               uint8_t* panel) {
  constexpr int64_t kTileFloats = 8 * T::kSubBlocks * 16;
  alignas(64) float scale[kMaxSliceTiles * kTileFloats];
  alignas(64) float add[T::kAdds ? kMaxSliceTiles * kTileFloats : 1];
  int64_t blocks = 0;
  for (int64_t t = begin; t < end; ++t) {
    const TileOfStrip tile = TileAt(strip, shape, t);
    const int64_t at = blocks * T::kSubBlocks * 16;
    T::Scales(tile.scales, tile.blocks, scale + at, T::kAdds ? add + at : add);
    blocks += tile.blocks;
  }
  const Floats largest = LargestOf<T>(scale, add, blocks * T::kSubBlocks);
  const Floats inverse = InverseUnits(largest);
  StoreFloats(reinterpret_cast<float*>(panel) + v * 16,
              Multiply(largest, SetFloats(1.0f / kHighest)));
  uint8_t* to = panel + kFoldedUnitBytes + v * kPlaneBytes;
  const float* s = scale;
  const float* a = add;
  for (int64_t t = begin; t < end; ++t) {
    const TileOfStrip tile = TileAt(strip, shape, t);
    for (int64_t b = 0; b < tile.blocks; ++b, to += kFoldedBlockBytes) {
      const uint8_t* planes = tile.planes + b * T::kWords * kPlaneBytes;
      for (int w = 0; w < T::kWords; ++w) {
        __builtin_prefetch(planes + kFoldPrefetchBytes + w * kPlaneBytes);
      }
      Factors factors[T::kSubBlocks];
#pragma GCC unroll 2
      for (int sub = 0; sub < T::kSubBlocks; ++sub, s += 16) {
        const Floats scaled = Multiply(LoadFloats(s), inverse);
        Floats added = ZeroFloats();
        if constexpr (T::kAdds) {
          added = Multiply(LoadFloats(a), inverse);
          a += 16;
        }
        factors[sub] = FactorsOf(scaled, added, kTakenOff<T>);
      }
      FoldGroups<T, 0>(planes, factors, to);
    }
  }
}

// --- products ---

// Adds the dot products of a block's bytes.
template <int kRows>
[[gnu::always_inline]] inline void DotFoldedBlock(const uint8_t* w, const int8_t* q,
                                                  int64_t columns, Ints (*n)[kStripTile]) {
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    Bytes bytes[kStripTile];
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) {
      bytes[v] = LoadBytes(w + (g * kStripTile + v) * kPlaneBytes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Bytes four = FourOfAll(q + r * columns + 4 * g);
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) AddDot(n[r][v], bytes[v], four);
    }
  }
}

// y[kRows][kStripTile * 16] (rows ldy apart) = fma(the sums of a slice of `blocks` blocks, units,
// y); `first`: of zero. `x`: the tile of activations from the slice's first chunk on.
template <int kRows>
void FoldedTile(const uint8_t* panel, int64_t blocks, const uint8_t* x, bool first, float* y,
                int64_t ldy) {
  Floats f[kRows][kStripTile];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) f[r][v] = ZeroFloats();
  }
  const uint8_t* w = panel + kFoldedUnitBytes;
  for (; blocks > 0; blocks -= kChunkBlocks) {
    const int64_t count = Least(kChunkBlocks, blocks);
    const int64_t columns = count * kPackedBlock;
    Ints n[kRows][kStripTile];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) n[r][v] = IntsOfAll(x + 4 * (kRows + r));
    }
    const auto* q = reinterpret_cast<const int8_t*>(x) + kChunkHeadBytes * kRows;
    for (int64_t b = 0; b < count; ++b, w += kFoldedBlockBytes, q += kPackedBlock) {
      DotFoldedBlock<kRows>(w, q, columns, n);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float scale;
      memcpy(&scale, x + 4 * r, sizeof(scale));
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) {
        f[r][v] = FmaFloats(ToFloats(n[r][v]), SetFloats(scale), f[r][v]);
      }
    }
    x += kRows * (kChunkHeadBytes + columns);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kStripTile; ++v) {
    const Floats unit = LoadFloats(reinterpret_cast<const float*>(panel) + v * 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* to = y + r * ldy + v * 16;
      StoreFloats(to, FmaFloats(f[r][v], unit, first ? ZeroFloats() : LoadFloats(to)));
    }
  }
}

using FoldedTileFn = void (*)(const uint8_t* panel, int64_t blocks, const uint8_t* x, bool first,
                              float* y, int64_t ldy);
static_assert(kRowTile == 6);
constexpr FoldedTileFn kFoldedTiles[kRowTile] = {FoldedTile<1>, FoldedTile<2>, FoldedTile<3>,
                                                 FoldedTile<4>, FoldedTile<5>, FoldedTile<6>};

// --- by type ---

using FoldFn = UnpackFn;
inline FoldFn FindFold(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return FoldTiles<PackedQ4_0>;
    case DType::kQ4_1:
      return FoldTiles<PackedQ4_1>;
    case DType::kQ5_0:
      return FoldTiles<PackedQ5_0>;
    case DType::kQ5_1:
      return FoldTiles<PackedQ5_1>;
    case DType::kQ8_0:
      return FoldTiles<PackedQ8_0>;
    case DType::kQ2_K:
      return FoldTiles<PackedQ2_K>;
    case DType::kQ3_K:
      return FoldTiles<PackedQ3_K>;
    case DType::kQ4_K:
      return FoldTiles<PackedQ4_K>;
    case DType::kQ5_K:
      return FoldTiles<PackedQ5_K>;
    case DType::kQ6_K:
      return FoldTiles<PackedQ6_K>;
    case DType::kIQ4_NL:
      return FoldTiles<PackedIQ4_NL>;
    case DType::kIQ4_XS:
      return FoldTiles<PackedIQ4_XS>;
    case DType::kMXFP4:
      return FoldTiles<PackedMXFP4>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
