// Matrix products with weights as they lie in the file: Linear, LinearGroup and GluLinear. For
// types without a packed form, and for quantised ones under `--numerics float`.
//
// Output (row m, column n) is always computed in the same order, whatever else is computed with it:
// kLanes partial sums over ascending k, one fused multiply-add per step, then the tree of Sum4. Two
// ways lead there:
//   fused   few activation rows (decode): weights are decoded in registers and multiplied at once,
//   4 columns at a time,
//           so that each weight byte is read once and never written
//   panel   more rows (prefill), and types without a decoder here: some weight rows are decoded to
//   scratch once, then
//           a register tile of 4 columns x kTileTokens rows runs over all activation rows
// The weights' float values are the same bits both ways, hence so are the results.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/args.h"
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kColumns = 4;        // weight rows of a register tile
constexpr int kMaxPanelRows = 32;  // more would only push activations out of the cache
constexpr int64_t kPanelBytes =
    128 << 10;  // a part of the second-level cache; activations and sums need the rest
constexpr int64_t kShareUnit = 16;  // columns: threads never write to one cache line

// Weight rows decoded at a time: a multiple of kColumns.
inline int64_t PanelRows(int64_t n_in) {
  const int64_t fit = kPanelBytes / (Padded(n_in) * static_cast<int64_t>(sizeof(float)));
  const int64_t rows = fit / kColumns * kColumns;
  return rows < kColumns ? kColumns : rows > kMaxPanelRows ? kMaxPanelRows : rows;
}

// out[m][c] = dot of weight row c and activation row m, for M rows `ldx` apart.
template <typename D, int M>
void FusedDot(const uint8_t* const* w, const float* x, int64_t ldx, int64_t k,
              float (*out)[kColumns]) {
  F acc[kColumns][M];
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) acc[c][m] = Zero();
  }
  const uint8_t* p0 = w[0];
  const uint8_t* p1 = w[1];
  const uint8_t* p2 = w[2];
  const uint8_t* p3 = w[3];
  int64_t i = 0;
  const auto column = [&](const uint8_t* p, F* sums) __attribute__((always_inline)) {
    D::Block(
        p, [&](int offset, F weight) __attribute__((always_inline)) {
#pragma GCC unroll 4
          for (int m = 0; m < M; ++m)
            sums[m] = Fma(weight, Load(x + m * ldx + i + offset), sums[m]);
        });
  };
  for (; i + D::kBlock <= k; i += D::kBlock) {
    column(p0, acc[0]);
    column(p1, acc[1]);
    column(p2, acc[2]);
    column(p3, acc[3]);
    p0 += D::kBytes;
    p1 += D::kBytes;
    p2 += D::kBytes;
    p3 += D::kBytes;
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) Sum4(acc[0][m], acc[1][m], acc[2][m], acc[3][m], out[m]);
}

// The same for decoded weight rows `ldw` apart, which are padded with zeros to a multiple of
// kLanes.
template <int M>
void TileDot(const float* w, int64_t ldw, const float* x, int64_t ldx, int64_t k,
             float (*out)[kColumns]) {
  F acc[kColumns][M];
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) acc[c][m] = Zero();
  }
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    F row[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) row[c] = Load(w + c * ldw + i);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const F v = Load(x + m * ldx + i);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) acc[c][m] = Fma(row[c], v, acc[c][m]);
    }
  }
  if (i < k) {
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const F v = LoadN(x + m * ldx + i, k - i);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) acc[c][m] = Fma(Load(w + c * ldw + i), v, acc[c][m]);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) Sum4(acc[0][m], acc[1][m], acc[2][m], acc[3][m], out[m]);
}

// TileDot of 1 <= m <= kTileTokens rows.
inline void TileDotUpTo(int64_t m, const float* w, int64_t ldw, const float* x, int64_t ldx,
                        int64_t k, float (*out)[kColumns]) {
  switch (m) {
    case 1:
      return TileDot<1>(w, ldw, x, ldx, k, out);
    case 2:
      return TileDot<2>(w, ldw, x, ldx, k, out);
    case 3:
      if constexpr (kTileTokens >= 3) return TileDot<3>(w, ldw, x, ldx, k, out);
      break;
    case 4:
      if constexpr (kTileTokens >= 4) return TileDot<4>(w, ldw, x, ldx, k, out);
      break;
    case 5:
      if constexpr (kTileTokens >= 5) return TileDot<5>(w, ldw, x, ldx, k, out);
      break;
    default:
      if constexpr (kTileTokens >= 6) return TileDot<6>(w, ldw, x, ldx, k, out);
      break;
  }
}

using FusedFn = void (*)(const uint8_t* const* w, const float* x, int64_t ldx, int64_t k,
                         float (*out)[kColumns]);

struct WeightCodec {
  FusedFn fused[kFusedTokens];  // [m - 1]; all nullptr without a decoder in this file's family
  void (*decode)(const uint8_t* row, float* dst, int64_t k);
};

template <typename D>
constexpr WeightCodec CodecOf() {
  WeightCodec codec = {};
  codec.fused[0] = FusedDot<D, 1>;
  if constexpr (kFusedTokens > 1) codec.fused[1] = FusedDot<D, 2>;
  if constexpr (kFusedTokens > 2) codec.fused[2] = FusedDot<D, 3>;
  if constexpr (kFusedTokens > 3) codec.fused[3] = FusedDot<D, 4>;
  codec.decode = DecodeRow<D>;
  return codec;
}

inline WeightCodec FindCodec(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return CodecOf<Q4_0>();
    case DType::kQ4_1:
      return CodecOf<Q4_1>();
    case DType::kQ5_0:
      return CodecOf<Q5_0>();
    case DType::kQ5_1:
      return CodecOf<Q5_1>();
    case DType::kQ8_0:
      return CodecOf<Q8_0>();
    case DType::kQ4_K:
      return CodecOf<Q4_K>();
    case DType::kQ5_K:
      return CodecOf<Q5_K>();
    case DType::kQ6_K:
      return CodecOf<Q6_K>();
    default:
      return {};
  }
}

// One matrix product for a range of columns, with where its results go.
struct Product {
  const uint8_t* w;
  int64_t row_bytes;
  int64_t n_in;
  const float* bias;
  const float* x;
  int64_t rows;
  float* y;  // column 0 of row 0
  int64_t ldy;
  DType dtype;
};

inline Product ProductOf(const LinearArgs& a, int64_t rows, float* y, int64_t ldy) {
  const int64_t n_in = a.w.shape[1];
  const DTypeInfo& info = Info(a.w.dtype);
  return {reinterpret_cast<const uint8_t*>(a.w.data),
          n_in / info.block_elems * info.block_bytes,
          n_in,
          a.bias,
          a.x,
          rows,
          y,
          ldy,
          a.w.dtype};
}

inline void Put(const Product& p, int64_t m, int64_t n, int64_t count, const float* sums) {
  float* y = p.y + m * p.ldy + n;
  for (int64_t c = 0; c < count; ++c) y[c] = p.bias != nullptr ? sums[c] + p.bias[n + c] : sums[c];
}

// Short rows end before the hardware prefetchers have found their four streams, so they are asked
// for two tiles ahead: 12 to 19 GB/s on one Zen 5 core for Q4_1 rows of 768 from DRAM. Long rows
// need no help.
constexpr int64_t kPrefetchColumns = 2 * kColumns;
constexpr int64_t kPrefetchRowBytes = 2048;
constexpr int64_t kCacheLine = 64;

inline void Prefetch(const Product& p, int64_t n) {
  if (p.row_bytes > kPrefetchRowBytes) return;
  // An address only: it may lie past the end of the matrix, and prefetching there does nothing.
  const auto begin = reinterpret_cast<uintptr_t>(p.w) + static_cast<uintptr_t>(n * p.row_bytes);
  for (int64_t i = 0; i < kColumns * p.row_bytes; i += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(begin + static_cast<uintptr_t>(i)));
  }
}

inline void FusedColumns(const Product& p, FusedFn fused, int64_t begin, int64_t end) {
  float sums[kFusedTokens][kColumns];
  for (int64_t n = begin; n < end; n += kColumns) {
    const uint8_t* w[kColumns];
    for (int64_t c = 0; c < kColumns; ++c) w[c] = p.w + Least(n + c, end - 1) * p.row_bytes;
    Prefetch(p, n + kPrefetchColumns);
    fused(w, p.x, p.n_in, p.n_in, sums);
    for (int64_t m = 0; m < p.rows; ++m) Put(p, m, n, Least(kColumns, end - n), sums[m]);
  }
}

inline void PanelColumns(const Product& p, const WeightCodec& codec, int64_t begin, int64_t end,
                         float* panel) {
  const int64_t ldw = Padded(p.n_in);
  const int64_t panel_rows = PanelRows(p.n_in);
  const DecodeFn decode_any = Info(p.dtype).decode;
  float sums[kTileTokens][kColumns];
  for (int64_t n0 = begin; n0 < end; n0 += panel_rows) {
    const int64_t count = Least(panel_rows, end - n0);
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* row = p.w + (n0 + r) * p.row_bytes;
      float* dst = panel + r * ldw;
      if (codec.decode != nullptr) {
        codec.decode(row, dst, p.n_in);
      } else {
        decode_any(reinterpret_cast<const std::byte*>(row), dst, p.n_in);
        for (int64_t i = p.n_in; i < ldw; ++i) dst[i] = 0;
      }
    }
    for (int64_t m0 = 0; m0 < p.rows; m0 += kTileTokens) {
      const int64_t tokens = Least(kTileTokens, p.rows - m0);
      // Past `count` the panel holds rows of an earlier pass: sums of them are computed and
      // dropped.
      for (int64_t c = 0; c < count; c += kColumns) {
        TileDotUpTo(tokens, panel + c * ldw, ldw, p.x + m0 * p.n_in, p.n_in, p.n_in, sums);
        for (int64_t m = 0; m < tokens; ++m) {
          Put(p, m0 + m, n0 + c, Least(kColumns, count - c), sums[m]);
        }
      }
    }
  }
}

// Columns [begin, end) of all rows. `panel`: PanelFloats(n_in) floats.
inline void Columns(const Product& p, int64_t begin, int64_t end, float* panel) {
  if (begin >= end || p.rows == 0) return;
  const WeightCodec codec = FindCodec(p.dtype);
  if (p.rows <= kFusedTokens && codec.fused[p.rows - 1] != nullptr) {
    FusedColumns(p, codec.fused[p.rows - 1], begin, end);
  } else {
    PanelColumns(p, codec, begin, end, panel);
  }
}

inline int64_t PanelFloats(int64_t n_in) {
  return PanelRows(n_in) * Padded(n_in);
}
inline float* ScratchFloats(const ThreadSlot& thread) {
  return reinterpret_cast<float*>(thread.scratch);
}

void Linear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  const int64_t n_out = a.w.shape[0];
  const Share share = ShareOf(n_out, kShareUnit, thread);
  Columns(ProductOf(a, step.rows(a.rows), a.y, n_out), share.begin, share.end,
          ScratchFloats(thread));
}

// The threads share the columns of all members laid end to end.
void LinearGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  int64_t total = 0;
  for (int32_t i = 0; i < a.count; ++i) total += a.linear[i].w.shape[0];
  const Share share = ShareOf(total, kShareUnit, thread);
  int64_t first = 0;
  for (int32_t i = 0; i < a.count; ++i) {
    const LinearArgs& l = a.linear[i];
    const int64_t n_out = l.w.shape[0];
    const int64_t begin = share.begin > first ? share.begin - first : 0;
    const int64_t end = Least(share.end - first, n_out);
    Columns(ProductOf(l, step.rows(l.rows), l.y, n_out), begin, end, ScratchFloats(thread));
    first += n_out;
  }
}

constexpr int64_t kGluColumns = 32;

// Gate columns go straight to y, the same columns of up to scratch, then both are combined while
// they are in cache.
void GluLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const int64_t n_out = a.gate.w.shape[0];
  const int64_t rows = step.rows(a.gate.rows);
  float* panel = ScratchFloats(thread);
  float* up = panel + PanelFloats(a.gate.w.shape[1]);
  const Share share = ShareOf(n_out, kShareUnit, thread);
  const Product gate = ProductOf(a.gate, rows, a.y, n_out);
  Product up_product = ProductOf(a.up, rows, up, kGluColumns);
  for (int64_t n = share.begin; n < share.end; n += kGluColumns) {
    const int64_t end = Least(n + kGluColumns, share.end);
    Columns(gate, n, end, panel);
    up_product.y = up - n;  // column n lands in column 0 of the scratch
    Columns(up_product, n, end, panel);
    for (int64_t m = 0; m < rows; ++m) {
      float* y = a.y + m * n_out + n;
      GluRange(a.act, y, up + m * kGluColumns, y, 0, end - n);
    }
  }
}

size_t LinearScratch(const void* args, int64_t /*max_rows*/) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  return static_cast<size_t>(PanelFloats(a.w.shape[1])) * sizeof(float);
}

size_t LinearGroupScratch(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  size_t bytes = 0;
  for (int32_t i = 0; i < a.count; ++i) {
    const size_t one = LinearScratch(&a.linear[i], max_rows);
    bytes = one > bytes ? one : bytes;
  }
  return bytes;
}

size_t GluLinearScratch(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  return LinearScratch(&a.gate, max_rows) +
         static_cast<size_t>(max_rows * kGluColumns) * sizeof(float);
}

}  // namespace
}  // namespace lucid::LUCID_ISA
