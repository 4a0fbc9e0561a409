// Experts of packed quantised matrices: what experts-inl.h wants of packed_linear-inl.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/experts-inl.h"
#include "kernels/cpu/packed_linear-inl.h"

namespace lucid::LUCID_ISA {
namespace {

struct PackedExperts {
  static constexpr int64_t kTile = kRowTile;
  static constexpr int64_t kUnit = kPanelColumns;
  static constexpr int64_t kFewRows =
      64;  // for which the sums of kMostColumns stay in the second-level cache

  static int64_t Columns(int64_t rows) {
    const int64_t fit = kFewRows * kMostColumns / rows / kPanelColumns * kPanelColumns;
    return fit > kMostColumns ? kMostColumns : fit < kPanelColumns ? kPanelColumns : fit;
  }
  static int64_t Blocks(const ExpertMatrix& m) { return m.w.shape[1] / kPackedBlock; }
  static int64_t RowBytes(const ExpertMatrix& m, int64_t rows) {
    return PlaneBytes(rows, m.w.shape[1], kRowTile);
  }
  static int64_t TileOffset(const ExpertMatrix& m, int64_t tile) {
    return tile * Blocks(m) * PlaneBlockBytes(kRowTile);
  }
  static void PutTile(const ExpertMatrix& m, const float* const* x, int64_t count, uint8_t* to) {
    ClearLowRows(Blocks(m), count, to);
    for (int64_t i = 0; i < count; ++i) RoundRow({x[i], Blocks(m), m.error_budget}, i, count, to);
  }
  static void Sums(const ExpertMatrix& m, int64_t expert, const uint8_t* x, int64_t count,
                   int64_t begin, int64_t end, float* y, int64_t ldy, std::byte* scratch) {
    const PackedProduct p = PackedProductOf(LinearOf(m, expert));
    PanelScratch s = {};
    s.panels = reinterpret_cast<uint8_t*>(scratch);
    s.edge = reinterpret_cast<float*>(s.panels + kPackedPanelBytes);
    PackedStrips(p, {x, count, Blocks(m)}, begin / kStripRows, (end + kStripRows - 1) / kStripRows,
                 {y - begin, ldy}, s);
  }
  static size_t ScratchBytes(const ExpertMatrix&, int64_t rows) {
    return static_cast<size_t>(kPackedPanelBytes + RoundUp(rows, kRowTile) * kPanelColumns * 4);
  }
  static const char* Refuse(const LinearArgs& a) { return RefusePacked(a); }
};

}  // namespace
}  // namespace lucid::LUCID_ISA
