// Experts of packed plain matrices: what experts-inl.h wants of dense_linear-inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/dense_linear-inl.h"
#include "kernels/cpu/experts-inl.h"

namespace lucid::LUCID_ISA {
namespace {

struct DenseExperts {
  static constexpr int64_t kTile = 1;
  static constexpr int64_t kUnit = kDenseColumns;
  static constexpr int64_t kFewRows = 1;

  static int64_t Columns(int64_t) { return kDenseColumns; }
  static int64_t RowFloats(const ExpertMatrix& m) {
#if defined(LUCID_HAS_PAIRS)
    return PairsOfRow(m.w.shape[1]);
#else
    return m.w.shape[1];
#endif
  }
  static int64_t RowBytes(const ExpertMatrix& m, int64_t rows) {
    return rows * RowFloats(m) * 4;
  }
  static int64_t TileOffset(const ExpertMatrix& m, int64_t tile) {
    return RowBytes(m, tile);
  }
  static void PutTile(const ExpertMatrix& m, const float* const* x, int64_t, uint8_t* to) {
#if defined(LUCID_HAS_PAIRS)
    LinearArgs row;
    row.w = m.w;
    row.x = x[0];
    RoundToPairs(row, 0, 1, reinterpret_cast<uint32_t*>(to));
#else
    memcpy(to, x[0], static_cast<size_t>(RowBytes(m, 1)));
#endif
  }
  static void Sums(const ExpertMatrix& m, int64_t expert, const uint8_t* x, int64_t count,
                   int64_t begin, int64_t end, float* y, int64_t ldy, std::byte* scratch) {
    const DenseProduct p = DenseProductOf(LinearOf(m, expert));
    auto* sums = reinterpret_cast<float*>(scratch);
    DenseSums(p, {reinterpret_cast<const float*>(x), count, RowFloats(m)}, begin / kStripRows,
              (end + kStripRows - 1) / kStripRows, sums);
    for (int64_t i = 0; i < count; ++i) {
      AddDenseBias(p, begin, end - begin, sums + i * kDenseColumns);
      memcpy(y + i * ldy, sums + i * kDenseColumns,
             static_cast<size_t>(end - begin) * sizeof(float));
    }
  }
  static size_t ScratchBytes(const ExpertMatrix&, int64_t rows) {
    return static_cast<size_t>(DenseSumFloats(rows)) * sizeof(float);
  }
  static const char* Refuse(const LinearArgs& a) {
    return RefuseDense(a);
  }
};

}  // namespace
}  // namespace lucid::LUCID_ISA
