// Experts of matrices as they lie in the file: what experts-inl.h wants of linear-inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/experts-inl.h"
#include "kernels/cpu/linear-inl.h"

namespace lucid::LUCID_ISA {
namespace {

struct PlainExperts {
  static constexpr int64_t kTile = 1;
  static constexpr int64_t kUnit = kShareUnit;
  static constexpr int64_t kFewRows = 1;

  static int64_t Columns(int64_t) { return kGluColumns; }
  static int64_t RowBytes(const ExpertMatrix& m, int64_t rows) { return rows * m.w.shape[1] * 4; }
  static int64_t TileOffset(const ExpertMatrix& m, int64_t tile) { return RowBytes(m, tile); }
  static void PutTile(const ExpertMatrix& m, const float* const* x, int64_t, uint8_t* to) {
    memcpy(to, x[0], static_cast<size_t>(RowBytes(m, 1)));
  }
  static void Sums(const ExpertMatrix& m, int64_t expert, const uint8_t* x, int64_t count,
                   int64_t begin, int64_t end, float* y, int64_t ldy, std::byte* scratch) {
    LinearArgs a = LinearOf(m, expert);
    a.x = reinterpret_cast<const float*>(x);
    // Sums are written at column n of a row: the buffer begins with column `begin`.
    LUCID_ISA::Columns(ProductOf(a, count, y - begin, ldy), begin, end,
                       reinterpret_cast<float*>(scratch));
  }
  static size_t ScratchBytes(const ExpertMatrix& m, int64_t) {
    return static_cast<size_t>(PanelFloats(m.w.shape[1])) * sizeof(float);
  }
  static const char* Refuse(const LinearArgs& a) {
    return a.packed != nullptr ? "wants weights as they lie in the file" : nullptr;
  }
};

}  // namespace
}  // namespace lucid::LUCID_ISA
