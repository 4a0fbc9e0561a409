// Register tiles of packed plain types (F32, F16, BF16): sums of up to kDenseStrips strips for a
// few activation rows. Entry point: FindDenseKernels, for dense_linear-inl.h. The layout:
// kernels/packed.h.
//
// Every output is one chain of fused multiply-adds over ascending columns (on bfloat16 pairs: of
// dot products of two columns), begun at zero. What is held in registers meanwhile changes nothing,
// so a row's results are the same bits alone and among others.
#pragma once

#include <cstdint>

#include "kernels/cpu/strip-inl.h"
#include "tensor/dtype.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kDenseStrips = 4;  // strips that are computed together
constexpr int64_t kDenseColumns = kDenseStrips * 16;
constexpr int64_t kWordBytes = 64;

// Rows of a tile. kTileTokens tells how many registers there are: sums for 4 * kTileTokens vectors.
constexpr int kDenseRows = kStripVectors == 1 ? kTileTokens : 4 * kTileTokens / kStripVectors;

// Strips of a tile of so many rows: with eight sums in flight no multiply-add waits for another.
constexpr int StripsOfTile(int rows) {
  if (kStripVectors == 1) return kDenseStrips;
  const int strips = 8 / (kStripVectors * rows);
  return strips < 1 ? 1 : strips > kDenseStrips ? kDenseStrips : strips;
}

// --- types ---
//
// A type T has
//   kColumns            columns of a word
//   kItems              4-byte activations that meet a word: a float for each column, or one pair
//   T::Load<i>(word)    the weights that meet item i
//   T::Spread(x)        an activation for all rows of a strip
//   T::Sum(w, x, sum)   sum + w * x

struct OfFloats {
  static inline F Spread(const float* x) { return Set(*x); }
  static inline Floats Sum(const Floats& w, F x, Floats sum) {
#pragma GCC unroll 4
    for (int i = 0; i < kStripVectors; ++i) sum.v[i] = Fma(w.v[i], x, sum.v[i]);
    return sum;
  }
};

struct DenseF32 : OfFloats {
  static constexpr int kColumns = 1;
  static constexpr int kItems = 1;
  template <int kItem>
  static inline Floats Load(const uint8_t* word) {
    return LoadFloats(reinterpret_cast<const float*>(word));
  }
};

struct DenseF16 : OfFloats {
  static constexpr int kColumns = 2;
  static constexpr int kItems = 2;
  template <int kItem>
  static inline Floats Load(const uint8_t* word) {
    Floats out;
#pragma GCC unroll 4
    for (int i = 0; i < kStripVectors; ++i) out.v[i] = LoadF16(word + 32 * kItem + 2 * i * kLanes);
    return out;
  }
};

struct DenseBf16 : OfFloats {
  static constexpr int kColumns = 2;
  static constexpr int kItems = 2;
  template <int kItem>
  static inline Floats Load(const uint8_t* word) {
    using Bits = uint32_t __attribute__((vector_size(4 * kLanes)));
    Floats out;
#pragma GCC unroll 4
    for (int i = 0; i < kStripVectors; ++i) {
      Bits pairs;
      memcpy(&pairs, word + 4 * i * kLanes, sizeof(pairs));
      out.v[i] = reinterpret_cast<F>(kItem == 0 ? pairs << 16 : pairs & 0xffff0000u);
    }
    return out;
  }
};

#if defined(LUCID_HAS_PAIRS)
struct DenseBf16Pairs {
  static constexpr int kColumns = 2;
  static constexpr int kItems = 1;
  template <int kItem>
  static inline Pairs Load(const uint8_t* word) {
    return LoadPairs(reinterpret_cast<const uint32_t*>(word));
  }
  static inline Pairs Spread(const float* x) {
    return SetPairs(reinterpret_cast<const uint32_t*>(x));
  }
  static inline Floats Sum(Pairs w, Pairs x, Floats sum) { return {{DotPairs(w, x, sum.v[0])}}; }
};
#endif

// --- tiles ---

// Words [0, words) of some strips against some rows.
struct DenseTileArgs {
  const uint8_t* w[kDenseStrips];  // the first word of each strip
  int64_t strips;
  int64_t words;
  bool half;  // only the first column of the last word has an activation
  // From a strip to the next, whose words are asked for near the end of these; 0: the words that
  // follow in the same strip are.
  int64_t next_strip;
  const float* x;  // of a row: `words` * kItems items; rows are ldx items apart
  int64_t ldx;
  bool first;   // the sums begin here
  float* sums;  // [rows][kDenseColumns]
};

template <typename T, int kItem, int kRows, int kStrips>
[[gnu::always_inline]] inline void SumItem(const uint8_t* const* w, const float* x, int64_t ldx,
                                           Floats (*sum)[kStrips]) {
  decltype(T::template Load<kItem>(w[0])) weights[kStrips];
#pragma GCC unroll 4
  for (int v = 0; v < kStrips; ++v) weights[v] = T::template Load<kItem>(w[v]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto item = T::Spread(x + r * ldx + kItem);
#pragma GCC unroll 4
    for (int v = 0; v < kStrips; ++v) sum[r][v] = T::Sum(weights[v], item, sum[r][v]);
  }
}

// Bytes ahead in each strip: of 512 to 8192 the best on a core of Zen 5, by 3 to 7 %.
constexpr int64_t kDensePrefetch = 2048;

// Strips [begin, begin + kStrips).
template <typename T, int kRows, int kStrips>
[[gnu::always_inline]] inline void SumStrips(const DenseTileArgs& a, int64_t begin) {
  Floats sum[kRows][kStrips];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStrips; ++v) {
      const float* from = a.sums + r * kDenseColumns + (begin + v) * 16;
      sum[r][v] = a.first ? ZeroFloats() : LoadFloats(from);
    }
  }
  const uint8_t* w[kStrips];
#pragma GCC unroll 4
  for (int v = 0; v < kStrips; ++v) w[v] = a.w[begin + v];
  const float* x = a.x;
  const int64_t whole = a.words - (a.half ? 1 : 0);
  const int64_t within = a.words - kDensePrefetch / kWordBytes;
  for (int64_t i = 0; i < whole; ++i, x += T::kItems) {
    const int64_t ahead = kDensePrefetch + (i < within ? 0 : (kStrips - 1) * a.next_strip);
#pragma GCC unroll 4
    for (int v = 0; v < kStrips; ++v) __builtin_prefetch(w[v] + ahead);
    SumItem<T, 0, kRows, kStrips>(w, x, a.ldx, sum);
    if constexpr (T::kItems == 2) SumItem<T, 1, kRows, kStrips>(w, x, a.ldx, sum);
#pragma GCC unroll 4
    for (int v = 0; v < kStrips; ++v) w[v] += kWordBytes;
  }
  if (a.half) SumItem<T, 0, kRows, kStrips>(w, x, a.ldx, sum);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kStrips; ++v) {
      StoreFloats(a.sums + r * kDenseColumns + (begin + v) * 16, sum[r][v]);
    }
  }
}

template <typename T, int kRows>
void DenseTile(const DenseTileArgs& a) {
  constexpr int kStrips = StripsOfTile(kRows);
  for (int64_t v = 0; v < a.strips; v += kStrips) SumStrips<T, kRows, kStrips>(a, v);
}

// --- by type ---

using DenseTileFn = void (*)(const DenseTileArgs& a);

struct DenseKernels {
  DenseTileFn tile[kDenseRows];  // [rows - 1]
  int32_t columns;               // of a word
  int32_t items;
};

template <typename T>
constexpr DenseKernels DenseKernelsOf() {
  DenseKernels k = {};
  k.columns = T::kColumns;
  k.items = T::kItems;
#define LUCID_ROWS(n) \
  if constexpr (kDenseRows >= n) k.tile[n - 1] = DenseTile<T, n>
  LUCID_ROWS(1);
  LUCID_ROWS(2);
  LUCID_ROWS(3);
  LUCID_ROWS(4);
  LUCID_ROWS(5);
  LUCID_ROWS(6);
#undef LUCID_ROWS
  static_assert(kDenseRows <= 6);
  return k;
}

#if defined(LUCID_HAS_PAIRS)
constexpr bool kDensePairs = true;
inline DenseKernels FindDenseKernels(DType) {
  return DenseKernelsOf<DenseBf16Pairs>();
}
#else
constexpr bool kDensePairs = false;
inline DenseKernels FindDenseKernels(DType type) {
  switch (type) {
    case DType::kF32:
      return DenseKernelsOf<DenseF32>();
    case DType::kF16:
      return DenseKernelsOf<DenseF16>();
    default:
      return DenseKernelsOf<DenseBf16>();
  }
}
#endif

}  // namespace
}  // namespace lucid::LUCID_ISA
