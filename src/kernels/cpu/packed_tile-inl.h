// Register tiles of packed weights: sums of one or two strips for a tile of activation rows, over
// all columns.
//
// Every sum follows one order, whichever way it is computed: sub-blocks (of 32 columns, or 16 where
// the type has two scales in a block) ascending; in each
//   n = sum of q * (128 * high + low)               an exact integer; without low plane: of q *
//   high f = fma(float(n) * scale, activation scale, f) f = fma(add, sum of the activations, f)
//   where the type adds
// so a row's results are the same bits alone and among others.
#pragma once

#include <cstdint>

#include "kernels/cpu/packed_types-inl.h"
#include "kernels/packed.h"
#include "kernels/planes.h"

namespace lucid::LUCID_ISA {
namespace {

// How the tiles of a strip lie: `whole` tiles of 8 blocks, then one of `rest`.
struct StripShape {
  int64_t whole;
  int64_t whole_bytes;
  int64_t whole_scale_bytes;
  int64_t rest;
  int64_t rest_scale_bytes;
  int64_t blocks() const { return whole * 8 + rest; }
};
inline StripShape StripShapeOf(const PackedForm& form, int64_t n_in) {
  const int64_t rest = n_in % kPackedTile / kPackedBlock;
  return {n_in / kPackedTile, form.TileBytes(8), form.scale_bytes(8), rest,
          rest > 0 ? form.scale_bytes(rest) : 0};
}
struct TileOfStrip {
  const uint8_t* scales;
  const uint8_t* planes;
  int64_t blocks;
};
inline TileOfStrip TileAt(const uint8_t* strip, const StripShape& shape, int64_t tile) {
  const uint8_t* at = strip + tile * shape.whole_bytes;
  if (tile < shape.whole) return {at, at + shape.whole_scale_bytes, 8};
  return {at, at + shape.rest_scale_bytes, shape.rest};
}

// Signed weights go to an instruction that takes unsigned ones with 128 added.
template <typename T>
constexpr bool kFlips = T::kSigned && !kSignedDot;
template <typename T>
constexpr bool kDotsSigned = T::kSigned&& kSignedDot;
template <typename T>
constexpr int32_t kTakenOff = T::kOffset + (kFlips<T> ? 128 : 0);
// Its binary logarithm; 0 where nothing is taken off.
constexpr int LogOf(int32_t power) {
  return power <= 1 ? 0 : 1 + LogOf(power / 2);
}
template <typename T>
constexpr int kTakenOffBits = LogOf(kTakenOff<T>);
constexpr int Smaller(int a, int b) {
  return a < b ? a : b;
}
// Which sums of a block belong to a sub-block.
template <typename T, int kHalf>
constexpr int kSumOf = T::kSubBlocks == 1 ? kWholeBlock : kHalf;

template <typename T, int kGroup>
[[gnu::always_inline]] inline Bytes Operand(const uint8_t* planes) {
  if constexpr (kFlips<T>) {
    return Flip(T::template Group<kGroup>(planes));
  } else {
    return T::template Group<kGroup>(planes);
  }
}
template <bool kSigned, typename SumsT>  // a template, since not all sets have DotOfSigned
[[gnu::always_inline]] inline SumsT DotOf(const SumsT& sum, const Bytes& w, Four x) {
  if constexpr (kSigned) {
    return DotOfSigned(sum, w, x);
  } else {
    return Dot(sum, w, x);
  }
}

// --- few rows: weights unpacked in registers ---

// sums[kRows] += the dot products of groups [kGroup, kEnd), of one run, with rows of a plane.
template <typename T, int kGroup, int kEnd, int kRows, typename PlaneT>
[[gnu::always_inline]] inline void DotRun(const uint8_t* planes, const PlaneT& x, int64_t first,
                                          RunSums* sums) {
  if constexpr (kGroup < kEnd) {
    const Bytes w = Operand<T, kGroup>(planes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[r] = DotOf<kDotsSigned<T>>(sums[r], w, LoadFour(x[kGroup][first + r]));
    }
    DotRun<T, kGroup + 1, kEnd, kRows>(planes, x, first, sums);
  }
}
// n[kRows] += the dot products of groups [kGroup, kEnd) with rows of a plane.
template <typename T, int kGroup, int kEnd, int kRows, typename PlaneT>
[[gnu::always_inline]] inline void DotGroups(const uint8_t* planes, const PlaneT& x, int64_t first,
                                             Ints* n) {
  if constexpr (kGroup < kEnd) {
    constexpr int kRunEnd = Smaller(kGroup + RunGroups(T::kLargest), kEnd);
    RunSums sums[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = BeginRun(n[r]);
    DotRun<T, kGroup, kRunEnd, kRows>(planes, x, first, sums);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) n[r] = EndRun(n[r], sums[r]);
    DotGroups<T, kRunEnd, kEnd, kRows>(planes, x, first, n);
  }
}
template <typename T>
[[gnu::always_inline]] inline Ints StartOf(int32_t minus_sum) {
  if constexpr (kTakenOff<T> == 0) return ZeroInts();
  return ShiftedInt(minus_sum, kTakenOffBits<T>);
}

template <typename T, int kHalf, int kRows>
[[gnu::always_inline]] inline void DirectSubBlock(const uint8_t* planes, const PlaneBlock<kRows>& x,
                                                  const float* scale, const float* add, Floats* f) {
  constexpr int kFirst = kHalf * 8 / T::kSubBlocks;
  constexpr int kEnd = (kHalf + 1) * 8 / T::kSubBlocks;
  constexpr int kSum = kSumOf<T, kHalf>;
  Ints n[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) n[r] = StartOf<T>(x.minus_high[kSum][r]);
  DotGroups<T, kFirst, kEnd, kRows>(planes, x.high, 0, n);
  if (x.low_rows != 0) {
    asm("" : "+r"(planes));  // unpacks again, so that registers are left for the sums
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (((x.low_rows >> r) & 1u) == 0) continue;
      Ints low = StartOf<T>(x.minus_low[kSum][r]);
      DotGroups<T, kFirst, kEnd, 1>(planes, x.low, r, &low);
      n[r] = Add(TimesHighUnit(n[r]), low);
    }
  }
  const Floats s = LoadFloats(scale);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    f[r] = FmaFloats(Multiply(ToFloats(n[r]), s), SetFloats(x.scale[r]), f[r]);
    if constexpr (T::kAdds) {
      f[r] = FmaFloats(LoadFloats(add), SetFloats(x.sum[kSum][r]), f[r]);
    }
  }
}

// How far ahead of the bytes in use weights are asked for: a core that reads 45 GB/s with a latency
// of 120 ns has 5 KB under way, and the scales of a tile take as long as its planes.
constexpr int64_t kPrefetchBytes = 10240;

// What a thread reads: up to `end`, then what lies `jump` bytes further on than `end`.
struct WeightStream {
  const uint8_t* end;
  int64_t jump;
};

// Asks for as many bytes as lie at `p`, kPrefetchBytes later in the stream. Weights that meet one
// tile of rows pass through the first-level cache and push nothing out of the others; where a
// second tile may follow they stay.
template <int kRows>
[[gnu::always_inline]] inline void PrefetchAhead(const uint8_t* p, int64_t bytes,
                                                 const WeightStream& stream) {
  const uint8_t* ahead = p + kPrefetchBytes;
  if (ahead >= stream.end) ahead += stream.jump;
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(ahead + i, 0, kRows < kRowTile ? 0 : 3);
}

// out[kRows][16]: the sums of a strip.
template <typename T, int kRows>
void DirectTile(const uint8_t* strip, const StripShape& shape, const WeightStream& stream,
                const uint8_t* planes_of_x, float* out) {
  constexpr int64_t kBlockBytes = T::kWords * kPlaneBytes;
  const auto* x = reinterpret_cast<const PlaneBlock<kRows>*>(planes_of_x);
  Floats f[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) f[r] = ZeroFloats();
  const int64_t tiles = shape.whole + (shape.rest > 0 ? 1 : 0);
  for (int64_t t = 0; t < tiles; ++t) {
    const TileOfStrip tile = TileAt(strip, shape, t);
    alignas(64) float scale[16 * 16];
    alignas(64) float add[T::kAdds ? 16 * 16 : 1];
    PrefetchAhead<kRows>(tile.scales, shape.whole_scale_bytes, stream);
    T::Scales(tile.scales, tile.blocks, scale, add);
    for (int64_t b = 0; b < tile.blocks; ++b, ++x) {
      const uint8_t* planes = tile.planes + b * kBlockBytes;
      PrefetchAhead<kRows>(planes, kBlockBytes, stream);
      const float* s = scale + b * 16 * T::kSubBlocks;
      const float* a = T::kAdds ? add + b * 16 * T::kSubBlocks : add;
      DirectSubBlock<T, 0, kRows>(planes, *x, s, a, f);
      if constexpr (T::kSubBlocks == 2) {
        DirectSubBlock<T, 1, kRows>(planes, *x, s + 16, T::kAdds ? a + 16 : a, f);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) StoreFloats(out + 16 * r, f[r]);
}

// --- many rows: a panel of kStripTile strips with its numbers as bytes and its scales as floats
// ---

template <int kSubBlocksT, bool kAddsT, bool kSignedT, int kRunT>
struct PanelShape {
  static constexpr int kSubBlocks = kSubBlocksT;
  static constexpr bool kAdds = kAddsT;
  static constexpr bool kSigned = kSignedT;
  static constexpr bool kTakesOff = !kAddsT && !kSignedT;
  static constexpr int kGroups = 8 / kSubBlocksT;       // of a sub-block
  static constexpr int kRun = Smaller(kRunT, kGroups);  // of them added up in one run
  // A block: [8 groups][kStripTile] bytes of 16 rows, then [kSubBlocks][kStripTile][16] scales, and
  // as many addends.
  static constexpr int64_t kNumberBytes = 8 * kStripTile * kPlaneBytes;
  static constexpr int64_t kScaleBytes = kSubBlocks * kStripTile * 16 * 4;
  static constexpr int64_t kBlockBytes = kNumberBytes + kScaleBytes * (kAdds ? 2 : 1);
};
template <typename T>
using PanelShapeOf = PanelShape<T::kSubBlocks, T::kAdds, kDotsSigned<T>, RunGroups(T::kLargest)>;

template <typename T, int kGroup>
[[gnu::always_inline]] inline void UnpackGroups(const uint8_t* planes, uint8_t* panel) {
  if constexpr (kGroup < 8) {
    StoreBytes(panel + kGroup * kStripTile * kPlaneBytes, Operand<T, kGroup>(planes));
    UnpackGroups<T, kGroup + 1>(planes, panel);
  }
}

// Tiles [begin, end) of a strip to place `v` of a panel.
template <typename T>
void UnpackTiles(const uint8_t* strip, const StripShape& shape, int64_t begin, int64_t end, int v,
                 uint8_t* panel) {
  using Panel = PanelShapeOf<T>;
  for (int64_t t = begin; t < end; ++t) {
    const TileOfStrip tile = TileAt(strip, shape, t);
    alignas(64) float scale[16 * 16];
    alignas(64) float add[T::kAdds ? 16 * 16 : 1];
    T::Scales(tile.scales, tile.blocks, scale, add);
    for (int64_t b = 0; b < tile.blocks; ++b, panel += Panel::kBlockBytes) {
      UnpackGroups<T, 0>(tile.planes + b * T::kWords * kPlaneBytes, panel + v * kPlaneBytes);
      for (int sub = 0; sub < T::kSubBlocks; ++sub) {
        const int64_t from = (b * T::kSubBlocks + sub) * 16;
        uint8_t* to = panel + Panel::kNumberBytes + (sub * kStripTile + v) * 64;
        memcpy(to, scale + from, 64);
        if constexpr (T::kAdds) memcpy(to + Panel::kScaleBytes, add + from, 64);
      }
    }
  }
}

// The float step of a sub-block: f += n * scale * unit, and what the type adds.
template <typename Panel, int kHalf, int kRows>
[[gnu::always_inline]] inline void PanelFloats(const uint8_t* panel, const PlaneBlock<kRows>& x,
                                               const Ints (*n)[kStripTile],
                                               Floats (*f)[kStripTile]) {
  const auto* scales =
      reinterpret_cast<const float*>(panel + Panel::kNumberBytes) + kHalf * kStripTile * 16;
  Floats scale[kStripTile];
#pragma GCC unroll 4
  for (int v = 0; v < kStripTile; ++v) scale[v] = LoadFloats(scales + v * 16);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Floats unit = SetFloats(x.scale[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) {
      f[r][v] = FmaFloats(Multiply(ToFloats(n[r][v]), scale[v]), unit, f[r][v]);
    }
  }
  if constexpr (Panel::kAdds) {
    const float* adds = scales + Panel::kScaleBytes / 4;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats sum = SetFloats(x.sum[kSumOf<Panel, kHalf>][r]);
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) {
        f[r][v] = FmaFloats(LoadFloats(adds + v * 16), sum, f[r][v]);
      }
    }
  }
}

// n[r] = 128 * n[r] + the sum over the low plane, for the rows that have one.
template <typename Panel, int kHalf, int kRows>
[[gnu::always_inline]] inline void AddLowPlanes(const uint8_t* panel, const PlaneBlock<kRows>& x,
                                                int taken_off_bits, Ints (*n)[kStripTile]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (((x.low_rows >> r) & 1u) == 0) continue;
    Ints low[kStripTile];
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) {
      low[v] = Panel::kTakesOff ? ShiftedInt(x.minus_low[kSumOf<Panel, kHalf>][r], taken_off_bits)
                                : ZeroInts();
    }
#pragma GCC unroll 8
    for (int run = 0; run < Panel::kGroups; run += Panel::kRun) {
      RunSums sums[kStripTile];
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) sums[v] = BeginRun(low[v]);
#pragma GCC unroll 8
      for (int i = 0; i < Panel::kRun; ++i) {
        const int g = kHalf * Panel::kGroups + run + i;
        const Four four = LoadFour(x.low[g][r]);
#pragma GCC unroll 4
        for (int v = 0; v < kStripTile; ++v) {
          const Bytes w = LoadBytes(panel + (g * kStripTile + v) * kPlaneBytes);
          sums[v] = DotOf<Panel::kSigned>(sums[v], w, four);
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) low[v] = EndRun(low[v], sums[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) n[r][v] = Add(TimesHighUnit(n[r][v]), low[v]);
  }
}

// n[r] += the sum over a run of groups, from `first` on, of the high plane.
template <typename Panel, int kRows>
[[gnu::always_inline]] inline void AddRun(const uint8_t* panel, const PlaneBlock<kRows>& x,
                                          int first, Ints (*n)[kStripTile]) {
  RunSums sums[kRows][kStripTile];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) sums[r][v] = BeginRun(n[r][v]);
  }
#pragma GCC unroll 8
  for (int g = first; g < first + Panel::kRun; ++g) {
    Bytes w[kStripTile];
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) {
      w[v] = LoadBytes(panel + (g * kStripTile + v) * kPlaneBytes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Four four = LoadFour(x.high[g][r]);
#pragma GCC unroll 4
      for (int v = 0; v < kStripTile; ++v) {
        sums[r][v] = DotOf<Panel::kSigned>(sums[r][v], w[v], four);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) n[r][v] = EndRun(n[r][v], sums[r][v]);
  }
}

template <typename Panel, int kHalf, int kRows>
[[gnu::always_inline]] inline void PanelSubBlock(const uint8_t* panel, const PlaneBlock<kRows>& x,
                                                 int taken_off_bits, Floats (*f)[kStripTile]) {
  Ints n[kRows][kStripTile];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Ints start = Panel::kTakesOff
                           ? ShiftedInt(x.minus_high[kSumOf<Panel, kHalf>][r], taken_off_bits)
                           : ZeroInts();
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) n[r][v] = start;
  }
#pragma GCC unroll 8
  for (int run = 0; run < Panel::kGroups; run += Panel::kRun) {
    AddRun<Panel, kRows>(panel, x, kHalf * Panel::kGroups + run, n);
  }
  if (x.low_rows != 0) {
    // Reads the numbers again: kept in registers they would push the sums to the stack.
    const uint8_t* again = panel;
    asm("" : "+r"(again));
    AddLowPlanes<Panel, kHalf, kRows>(again, x, taken_off_bits, n);
  }
  PanelFloats<Panel, kHalf, kRows>(panel, x, n, f);
}

// y[kRows][kStripTile * 16] (rows ldy apart) += the sums over the panel's `blocks` blocks; `first`:
// = them.
template <typename Panel, int kRows>
void PanelTile(const uint8_t* panel, int64_t blocks, int taken_off_bits, const uint8_t* planes_of_x,
               bool first, float* y, int64_t ldy) {
  const auto* x = reinterpret_cast<const PlaneBlock<kRows>*>(planes_of_x);
  Floats f[kRows][kStripTile];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) {
      f[r][v] = first ? ZeroFloats() : LoadFloats(y + r * ldy + v * 16);
    }
  }
  for (int64_t b = 0; b < blocks; ++b, ++x, panel += Panel::kBlockBytes) {
    PanelSubBlock<Panel, 0, kRows>(panel, *x, taken_off_bits, f);
    if constexpr (Panel::kSubBlocks == 2) {
      PanelSubBlock<Panel, 1, kRows>(panel, *x, taken_off_bits, f);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStripTile; ++v) StoreFloats(y + r * ldy + v * 16, f[r][v]);
  }
}

// --- by type ---

using DirectFn = void (*)(const uint8_t* strip, const StripShape& shape, const WeightStream& stream,
                          const uint8_t* x, float* out);
using UnpackFn = void (*)(const uint8_t* strip, const StripShape& shape, int64_t begin, int64_t end,
                          int v, uint8_t* panel);
using PanelFn = void (*)(const uint8_t* panel, int64_t blocks, int taken_off_bits, const uint8_t* x,
                         bool first, float* y, int64_t ldy);

struct PackedKernels {
  DirectFn direct[kRowTile];  // [rows - 1]
  UnpackFn unpack;
  PanelFn panel[kRowTile];
  int taken_off_bits;
};

template <typename T>
constexpr PackedKernels KernelsOf() {
  using Panel = PanelShapeOf<T>;
  PackedKernels k = {};
  k.unpack = UnpackTiles<T>;
  static_assert(kTakenOff<T> == (Panel::kTakesOff ? 1 << kTakenOffBits<T> : 0));
  k.taken_off_bits = kTakenOffBits<T>;
#define LUCID_ROWS(n)                     \
  if constexpr (kRowTile >= n) {          \
    k.direct[n - 1] = DirectTile<T, n>;   \
    k.panel[n - 1] = PanelTile<Panel, n>; \
  }
  LUCID_ROWS(1)
  LUCID_ROWS(2)
  LUCID_ROWS(3)
  LUCID_ROWS(4)
  LUCID_ROWS(5)
  LUCID_ROWS(6)
#undef LUCID_ROWS
  return k;
}

inline PackedKernels FindPackedKernels(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return KernelsOf<PackedQ4_0>();
    case DType::kQ4_1:
      return KernelsOf<PackedQ4_1>();
    case DType::kQ5_0:
      return KernelsOf<PackedQ5_0>();
    case DType::kQ5_1:
      return KernelsOf<PackedQ5_1>();
    case DType::kQ8_0:
      return KernelsOf<PackedQ8_0>();
    case DType::kQ2_K:
      return KernelsOf<PackedQ2_K>();
    case DType::kQ3_K:
      return KernelsOf<PackedQ3_K>();
    case DType::kQ4_K:
      return KernelsOf<PackedQ4_K>();
    case DType::kQ5_K:
      return KernelsOf<PackedQ5_K>();
    case DType::kQ6_K:
      return KernelsOf<PackedQ6_K>();
    case DType::kIQ4_NL:
      return KernelsOf<PackedIQ4_NL>();
    case DType::kIQ4_XS:
      return KernelsOf<PackedIQ4_XS>();
    case DType::kMXFP4:
      return KernelsOf<PackedMXFP4>();
    default:
      return {};
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
