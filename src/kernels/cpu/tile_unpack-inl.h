// Tiles of bfloat16 pairs (tile_emulated.h says how they lie) from activations and from packed
// weights. Entry points: StoreRowOfA, FindUnpack. Used by tile_linear-inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/packed_types-inl.h"
#include "kernels/packed.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPairStrips = 2;  // strips that meet a row of activations at a time
constexpr int64_t kStepBytes = kPairStrips * kTileBytes;  // 32 columns of the matrix for them
constexpr int64_t kTilePrefetchBytes = 2048;
static_assert(kPackedBlock == 32 && kStripRows == kTileRows);

// --- bfloat16 ---

#if !defined(LUCID_HAS_PAIRS)
// As VCVTNE2PS2BF16: to nearest even, denormals to zero.
inline uint16_t RoundToBf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return (bits & 0x7f800000u) == 0 ? static_cast<uint16_t>(bits >> 16 & 0x8000u) : ToBf16(x);
}
#endif

// 32 floats at x as neighbours: a row of a tile `a`.
inline void StoreRowOfA(const float* x, uint8_t* to) {
#if defined(LUCID_HAS_PAIRS)
  StorePairs(reinterpret_cast<uint32_t*>(to), PairNeighbours(Load(x), Load(x + kLanes)));
#else
  uint16_t row[32];
  for (int i = 0; i < 32; ++i) row[i] = RoundToBf16(x[i]);
  memcpy(to, row, sizeof(row));
#endif
}
// Columns 2k and 2k + 1 of 16 rows of the matrix: row k of a tile `b`.
inline void StoreRowOfB(const Floats& even, const Floats& odd, uint8_t* to) {
#if defined(LUCID_HAS_PAIRS)
  StorePairs(reinterpret_cast<uint32_t*>(to), PairLanes(even.v[0], odd.v[0]));
#else
  float lanes[2][16];
  StoreFloats(lanes[0], even);
  StoreFloats(lanes[1], odd);
  uint16_t row[32];
  for (int i = 0; i < 32; ++i) row[i] = RoundToBf16(lanes[i % 2][i / 2]);
  memcpy(to, row, sizeof(row));
#endif
}

// --- weights ---

// Column kColumn of the four columns of a group, as floats.
template <bool kSigned, int kColumn>
[[gnu::always_inline]] inline Floats ColumnOf(const Bytes& group) {
  using Ints16 = int32_t __attribute__((vector_size(64)));
  using Floats16 = float __attribute__((vector_size(64)));
  static_assert(sizeof(Bytes) == sizeof(Ints16) && sizeof(Floats) == sizeof(Floats16));
  Ints16 q;
  memcpy(&q, &group, sizeof(q));
  if constexpr (kSigned) {
    q = (q << (24 - 8 * kColumn)) >> 24;
  } else {
    q = (q >> (8 * kColumn)) & 255;
  }
  const Floats16 f = __builtin_convertvector(q, Floats16);
  Floats out;
  memcpy(&out, &f, sizeof(out));
  return out;
}

// The values of a block are fma(scale, q, add). Of all types, scale * q is exact in float32, and so
// is the offset times the scale: one rounding, that of the decoders of the type.
template <typename T, int kGroup>
[[gnu::always_inline]] inline void UnpackGroups(const uint8_t* planes, const Floats* scale,
                                                const Floats* add, uint8_t* to) {
  if constexpr (kGroup < 8) {
    constexpr int kSub = T::kSubBlocks == 2 ? kGroup / 4 : 0;
    const Bytes q = T::template Group<kGroup>(planes);
    const auto value = [&](const Floats& column) __attribute__((always_inline)) {
      return FmaFloats(scale[kSub], column, add[kSub]);
    };
    StoreRowOfB(value(ColumnOf<T::kSigned, 0>(q)), value(ColumnOf<T::kSigned, 1>(q)),
                to + 2 * kGroup * 64);
    StoreRowOfB(value(ColumnOf<T::kSigned, 2>(q)), value(ColumnOf<T::kSigned, 3>(q)),
                to + (2 * kGroup + 1) * 64);
    UnpackGroups<T, kGroup + 1>(planes, scale, add, to);
  }
}

// How the tiles of 256 columns of a strip lie.
struct StripTiles {
  int64_t steps;  // blocks of 32 columns
  int64_t tile_bytes;
  int64_t scale_bytes;
  int64_t rest_scale_bytes;  // of the last, shorter tile
};

// Steps [step, end) of a strip to tiles `b`, kStepBytes apart. `step` begins a tile of 256 columns.
template <typename T>
void UnpackSteps(const uint8_t* strip, const StripTiles& shape, int64_t step, int64_t end,
                 uint8_t* to) {
  constexpr int64_t kTileSteps = kPackedTile / kPackedBlock;
  for (; step < end; step += kTileSteps) {
    const uint8_t* tile = strip + step / kTileSteps * shape.tile_bytes;
    const int64_t blocks = Least(kTileSteps, shape.steps - step);
    const uint8_t* planes =
        tile + (blocks == kTileSteps ? shape.scale_bytes : shape.rest_scale_bytes);
    alignas(64) float scales[16 * 16];
    alignas(64) float adds[T::kAdds ? 16 * 16 : 1];
    T::Scales(tile, blocks, scales, adds);
    for (int64_t b = 0; b < blocks; ++b, to += kStepBytes) {
      const uint8_t* at = planes + b * T::kWords * kPlaneBytes;
      for (int w = 0; w < T::kWords; ++w) {
        __builtin_prefetch(at + kTilePrefetchBytes + w * kPlaneBytes);
      }
      Floats scale[T::kSubBlocks];
      Floats add[T::kSubBlocks];
#pragma GCC unroll 2
      for (int s = 0; s < T::kSubBlocks; ++s) {
        const int64_t from = (b * T::kSubBlocks + s) * 16;
        scale[s] = LoadFloats(scales + from);
        if constexpr (T::kAdds) {
          add[s] = LoadFloats(adds + from);
        } else {
          add[s] = Multiply(scale[s], SetFloats(static_cast<float>(-T::kOffset)));
        }
      }
      UnpackGroups<T, 0>(at, scale, add, to);
    }
  }
}

using UnpackFn = void (*)(const uint8_t* strip, const StripTiles& shape, int64_t step, int64_t end,
                          uint8_t* to);
inline UnpackFn FindUnpack(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return UnpackSteps<PackedQ4_0>;
    case DType::kQ4_1:
      return UnpackSteps<PackedQ4_1>;
    case DType::kQ5_0:
      return UnpackSteps<PackedQ5_0>;
    case DType::kQ5_1:
      return UnpackSteps<PackedQ5_1>;
    case DType::kQ8_0:
      return UnpackSteps<PackedQ8_0>;
    case DType::kQ2_K:
      return UnpackSteps<PackedQ2_K>;
    case DType::kQ3_K:
      return UnpackSteps<PackedQ3_K>;
    case DType::kQ4_K:
      return UnpackSteps<PackedQ4_K>;
    case DType::kQ5_K:
      return UnpackSteps<PackedQ5_K>;
    case DType::kQ6_K:
      return UnpackSteps<PackedQ6_K>;
    case DType::kIQ4_NL:
      return UnpackSteps<PackedIQ4_NL>;
    case DType::kIQ4_XS:
      return UnpackSteps<PackedIQ4_XS>;
    case DType::kMXFP4:
      return UnpackSteps<PackedMXFP4>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
