// Packing and reading of plain types, in plain code. Entry points: PackDenseStrips, DecodeDenseRow.
#include "kernels/packed_dense.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/dtype.h"

namespace lucid {
namespace {

constexpr int64_t kRows = kStripRows;
using StripRows = std::array<const std::byte*, kStripRows>;  // nullptr: a padding row

// dst[i][r] = items [begin, begin + count) of row r, an item being kBytes.
template <int kBytes>
void Interleave(const StripRows& rows, int64_t begin, int64_t count, std::byte* dst) {
  constexpr int64_t kAtOnce = 16;  // of each row, so that what is written stays in the cache
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t end = std::min(first + kAtOnce, count);
    for (int64_t r = 0; r < kRows; ++r) {
      const std::byte* row = rows[static_cast<size_t>(r)];
      for (int64_t i = first; i < end; ++i) {
        std::byte* to = dst + (i * kRows + r) * kBytes;
        if (row == nullptr) {
          std::memset(to, 0, kBytes);
        } else {
          std::memcpy(to, row + (begin + i) * kBytes, kBytes);
        }
      }
    }
  }
}

void PackStrip(DType type, const StripRows& rows, int64_t n_in, std::byte* dst) {
  if (type == DType::kF32) return Interleave<4>(rows, 0, n_in, dst);
  if (type == DType::kF16) {
    Interleave<2>(rows, 0, n_in, dst);
    if (n_in % 2 != 0) std::memset(dst + n_in * kRows * 2, 0, kRows * 2);
    return;
  }
  Interleave<4>(rows, 0, n_in / 2, dst);  // a pair of bfloat16 numbers is an item
  if (n_in % 2 == 0) return;
  std::byte* last = dst + n_in / 2 * kPackedWord;
  std::memset(last, 0, kPackedWord);
  for (int64_t r = 0; r < kRows; ++r) {
    const std::byte* row = rows[static_cast<size_t>(r)];
    if (row != nullptr) std::memcpy(last + 4 * r, row + (n_in - 1) * 2, 2);
  }
}

// Where column k of row r lies in a strip.
int64_t OffsetInStrip(DType type, int64_t k, int64_t r) {
  switch (type) {
    case DType::kF32:
      return (k * kRows + r) * 4;
    case DType::kF16:
      return (k * kRows + r) * 2;
    default:
      return k / 2 * kPackedWord + r * 4 + k % 2 * 2;
  }
}

}  // namespace

void PackDenseStrips(const PackedForm& form, const Tensor& w, int64_t begin, int64_t end,
                     std::byte* packed) {
  const int64_t strip_bytes = form.StripBytes(w.cols());
  for (int64_t strip = begin; strip < end; ++strip) {
    StripRows rows{};
    for (int64_t r = 0; r < kRows && strip * kRows + r < w.rows(); ++r) {
      rows[static_cast<size_t>(r)] = w.row(strip * kRows + r);
    }
    PackStrip(w.dtype, rows, w.cols(), packed + strip * strip_bytes);
  }
}

void DecodeDenseRow(const PackedForm& form, const std::byte* packed, int64_t n_in, int64_t row,
                    float* dst) {
  const DTypeInfo& info = Info(form.type);
  const std::byte* strip = packed + row / kRows * form.StripBytes(n_in);
  constexpr int64_t kAtOnce = 256;
  std::array<std::byte, kAtOnce * sizeof(float)> gathered;
  for (int64_t k = 0; k < n_in; k += kAtOnce) {
    const int64_t count = std::min(kAtOnce, n_in - k);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(gathered.data() + i * info.block_bytes,
                  strip + OffsetInStrip(form.type, k + i, row % kRows),
                  static_cast<size_t>(info.block_bytes));
    }
    info.decode(gathered.data(), dst + k, count);
  }
}

}  // namespace lucid
