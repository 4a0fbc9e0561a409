// Tensor: a non-owning view of stored numbers. Row-major, the last dimension contiguous.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"

namespace lucid {

struct Tensor {
  static constexpr int kMaxRank = 4;

  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};  // outermost first: a weight matrix is [n_out, n_in]

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  int64_t cols() const { return rank == 0 ? 1 : shape[rank - 1]; }
  int64_t rows() const { return cols() == 0 ? 0 : elements() / cols(); }
  int64_t row_bytes() const { return RowBytes(dtype, cols()); }
  int64_t bytes() const { return rows() * row_bytes(); }
  const std::byte* row(int64_t i) const { return data + i * row_bytes(); }
  const float* f32() const {
    LUCID_DCHECK(dtype == DType::kF32);
    return reinterpret_cast<const float*>(data);
  }
};

}  // namespace lucid
