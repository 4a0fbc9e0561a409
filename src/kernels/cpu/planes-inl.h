// Rounding of activations to planes of bytes (kernels/planes.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/strip-inl.h"
#include "kernels/planes.h"

namespace lucid::LUCID_ISA {
namespace {

// Blocks whose largest value is below this are zero: their scale would leave float's normal range.
constexpr float kSmallest = 1e-30f;
constexpr float kHighest = 127.0f;
constexpr float kLowUnit = 1 << kLowBits;

struct PlaneRow {
  const float* x;
  int64_t blocks;
  float error_budget;  // 0: both planes everywhere
};

// Where the numbers of row `r` of a tile of `rows` rows lie, from the start of a block. Members of
// PlaneBlock in its order.
constexpr int64_t kScaleAt = 0;
constexpr int64_t kSumAt = 1;
constexpr int64_t kMinusHighAt = kSumAt + kPlaneSums;
constexpr int64_t kMinusLowAt = kMinusHighAt + kPlaneSums;
constexpr int64_t kLowRowsAt = kMinusLowAt + kPlaneSums;
struct PlanePlaces {
  int64_t rows;
  int64_t r;
  float* Float(uint8_t* block, int64_t member) const {
    return reinterpret_cast<float*>(block) + member * rows + r;
  }
  int32_t* Int(uint8_t* block, int64_t member) const {
    return reinterpret_cast<int32_t*>(block) + member * rows + r;
  }
  uint32_t* LowRows(uint8_t* block) const {
    return reinterpret_cast<uint32_t*>(block) + kLowRowsAt * rows;
  }
  uint8_t* High(uint8_t* block) const { return block + 4 * (kLowRowsAt * rows + 1 + r); }
  uint8_t* Low(uint8_t* block) const { return High(block) + 32 * rows; }
};

struct RowMagnitude {
  float energy;  // sum of squares
  bool finite;
};

// Writes the largest magnitude of each block to its scale.
inline RowMagnitude MeasureRow(const PlaneRow& row, const PlanePlaces& at, uint8_t* tile,
                               int64_t block_bytes) {
  Floats energy = ZeroFloats();  // of 16 columns, so that all instruction sets add in one order
  F nothing = Zero();            // stays zero unless a value is not finite
  for (int64_t b = 0; b < row.blocks; ++b) {
    F largest = Zero();
#pragma GCC unroll 2
    for (int i = 0; i < kPackedBlock; i += 16) {
      const Floats x = LoadFloats(row.x + b * kPackedBlock + i);
      energy = FmaFloats(x, x, energy);
#pragma GCC unroll 4
      for (int j = 0; j < kStripVectors; ++j) {
        largest = Max(largest, Abs(x.v[j]));
        nothing = Fma(x.v[j], Zero(), nothing);
      }
    }
    *at.Float(tile + b * block_bytes, kScaleAt) = MaxLane(largest);
  }
  float parts[16];
  StoreFloats(parts, energy);
  for (int n = 8; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) parts[i] += parts[i + n];
  }
  return {parts[0], SumOfIntegers(nothing) == 0.0f};
}

// Puts 32 bytes in place, and minus their sums; returns the sums of the halves.
struct HalfSums {
  int32_t v[2];
};
inline HalfSums PutPlane(const int8_t* plane, const PlanePlaces& at, int64_t sums_at, uint8_t* to,
                         uint8_t* block) {
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) memcpy(to + g * 4 * at.rows, plane + 4 * g, 4);
  const HalfSums half = {{SumOf16(plane), SumOf16(plane + 16)}};
  *at.Int(block, sums_at + kFirstHalf) = -half.v[0];
  *at.Int(block, sums_at + kSecondHalf) = -half.v[1];
  *at.Int(block, sums_at + kWholeBlock) = -(half.v[0] + half.v[1]);
  return half;
}

// Rounds one block to the planes in front of it.
inline void RoundBlock(const float* x, float largest, bool with_low, const PlanePlaces& at,
                       uint8_t* block) {
  const F inverse = Set(largest < kSmallest ? 0.0f : kHighest / largest);
  float unit = largest < kSmallest ? 0.0f : largest / kHighest;
  int8_t plane[kPackedBlock];
#pragma GCC unroll 8
  for (int i = 0; i < kPackedBlock; i += kLanes) {
    StoreI8(plane + i, Round(Load(x + i) * inverse));
  }
  HalfSums units = PutPlane(plane, at, kMinusHighAt, at.High(block), block);
  if (with_low) {
#pragma GCC unroll 8
    for (int i = 0; i < kPackedBlock; i += kLanes) {
      const F v = Load(x + i) * inverse;
      StoreI8(plane + i, Round((v - Round(v)) * Set(kLowUnit)));
    }
    const HalfSums low = PutPlane(plane, at, kMinusLowAt, at.Low(block), block);
    for (int half = 0; half < 2; ++half) {
      units.v[half] = units.v[half] * (1 << kLowBits) + low.v[half];
    }
    unit /= kLowUnit;
    *at.LowRows(block) |= 1u << at.r;
  }
  *at.Float(block, kScaleAt) = unit;
  *at.Float(block, kSumAt + kFirstHalf) = unit * static_cast<float>(units.v[0]);
  *at.Float(block, kSumAt + kSecondHalf) = unit * static_cast<float>(units.v[1]);
  *at.Float(block, kSumAt + kWholeBlock) = unit * static_cast<float>(units.v[0] + units.v[1]);
}

// Row `r` of a tile of `rows` rows. A row with a value that is no number gets scales that are none
// either: its results are NaN, and only they.
inline void RoundRow(const PlaneRow& row, int64_t r, int64_t rows, uint8_t* tile) {
  const PlanePlaces at = {rows, r};
  const int64_t block_bytes = PlaneBlockBytes(rows);
  const RowMagnitude size = MeasureRow(row, at, tile, block_bytes);
  // The error of rounding to multiples of s: s^2 / 12 on average for each of 32 values.
  constexpr float kErrorOfBlock = kPackedBlock / (12.0f * kHighest * kHighest);
  const float allowed = size.energy * (row.error_budget / static_cast<float>(row.blocks));
  for (int64_t b = 0; b < row.blocks; ++b) {
    uint8_t* block = tile + b * block_bytes;
    const float largest = *at.Float(block, kScaleAt);
    if (size.finite) {
      const bool with_low = !(largest * largest * kErrorOfBlock <= allowed);
      RoundBlock(row.x + b * kPackedBlock, largest, with_low, at, block);
      continue;
    }
    constexpr float kZeros[kPackedBlock] = {};
    RoundBlock(kZeros, 0.0f, false, at, block);
    *at.Float(block, kScaleAt) = __builtin_nanf("");
    for (int i = 0; i < kPlaneSums; ++i) *at.Float(block, kSumAt + i) = __builtin_nanf("");
  }
}

inline void ClearLowRows(int64_t blocks, int64_t rows, uint8_t* tile) {
  const PlanePlaces at = {rows, 0};
  for (int64_t b = 0; b < blocks; ++b) *at.LowRows(tile + b * PlaneBlockBytes(rows)) = 0;
}

// Tiles [begin, end) of a.x[rows, n_in] to `planes`.
inline void RoundTiles(const LinearArgs& a, int64_t rows, int64_t begin, int64_t end,
                       uint8_t* planes) {
  const int64_t n_in = a.w.shape[1];
  const int64_t blocks = n_in / kPackedBlock;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t first = t * kRowTile;
    const int64_t in_tile = rows - first < kRowTile ? rows - first : kRowTile;
    uint8_t* tile = planes + t * blocks * PlaneBlockBytes(kRowTile);
    ClearLowRows(blocks, in_tile, tile);
    for (int64_t r = 0; r < in_tile; ++r) {
      RoundRow({a.x + (first + r) * n_in, blocks, a.error_budget}, r, in_tile, tile);
    }
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
