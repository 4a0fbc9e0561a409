// Tiles in plain C++: what the AMX tile instructions do, bit for bit, on any machine. One of two
// files with a tile type of the same functions; tile_amx.h has the instructions themselves, and
// tile_linear-inl.h is written over the type.
//
// A tile type keeps a block of sums of 2 x 2 tiles, the operands of one step, and multiplies them:
//   sum (i, j)  16 rows x 16 columns of float, i and j being 0 or 1
//   a (i)       16 rows of a sum x 16 pairs of bfloat16
//   b (j)       16 pairs x 16 columns: pair k of column n is number n of row k
// In memory a row of any tile is 64 bytes, and its rows follow each other. Use of a tile that
// Configure has not given rows stops the program, as the instructions do.
#pragma once

#include <cstdint>
#include <cstring>

namespace lucid::LUCID_ISA {
namespace {

class EmulatedTiles {
 public:
  // The rows of the block of sums, 1 to 32: 16 for i = 0 first, what is left for i = 1. Where that
  // changes something, all tiles become zero.
  void Configure(int64_t rows) {
    if (rows == rows_) return;
    rows_ = rows;
    memset(sum_, 0, sizeof(sum_));
    memset(a_, 0, sizeof(a_));
    memset(b_, 0, sizeof(b_));
  }
  // After the last use; Configure comes first again.
  void Release() { rows_ = 0; }

  template <int i>
  void LoadA(const uint8_t* p) {
    for (int64_t m = 0; m < RowsOf(i); ++m) {
      for (int k = 0; k < kNumbers; ++k) a_[i][m][k] = Number(p + m * kRowBytes + 2 * k);
    }
  }
  template <int j>
  void LoadB(const uint8_t* p) {
    NeedsRows(rows_);
    for (int k = 0; k < kPairs; ++k) {
      for (int n = 0; n < kColumns; ++n) {
        b_[j][k][0][n] = Number(p + k * kRowBytes + 4 * n);
        b_[j][k][1][n] = Number(p + k * kRowBytes + 4 * n + 2);
      }
    }
  }
  template <int i, int j>
  void ZeroSum() {
    NeedsRows(RowsOf(i));
    memset(sum_[i][j], 0, sizeof(sum_[i][j]));
  }
  template <int i, int j>
  void LoadSum(const float* p) {
    memcpy(sum_[i][j], p, static_cast<size_t>(RowsOf(i) * kRowBytes));
  }
  template <int i, int j>
  void StoreSum(float* p) const {
    memcpy(p, sum_[i][j], static_cast<size_t>(RowsOf(i) * kRowBytes));
  }

  // TDPBF16PS, sum (i, j) += a (i) b (j). The first numbers of the pairs are summed in one chain of
  // fused multiply-adds from zero, the second ones in another; their sum is added to what is there.
  // Always to nearest even, with denormals, read or made, as zeros. Source: Intel SDM volume 2,
  // "TDPBF16PS".
  template <int i, int j>
  void Multiply() {
    for (int64_t m = 0; m < RowsOf(i); ++m) {
      float chain[2][kColumns] = {};
      for (int k = 0; k < kPairs; ++k) {
        AddProducts(a_[i][m][2 * k], b_[j][k][0], chain[0]);
        AddProducts(a_[i][m][2 * k + 1], b_[j][k][1], chain[1]);
      }
      float* sum = sum_[i][j][m];
      for (int n = 0; n < kColumns; ++n) {
        sum[n] = Flush(Flush(sum[n]) + Flush(chain[0][n] + chain[1][n]));
      }
    }
  }

 private:
  static constexpr int64_t kRows = 16;
  static constexpr int kColumns = 16;
  static constexpr int kPairs = 16;
  static constexpr int kNumbers = 2 * kPairs;
  static constexpr int64_t kRowBytes = 64;
  static constexpr float kSmallestNormal = 0x1p-126f;

  static void NeedsRows(int64_t rows) {
    if (rows == 0) __builtin_trap();
  }
  int64_t RowsOf(int i) const {
    const int64_t rows =
        i == 0 ? (rows_ < kRows ? rows_ : kRows) : (rows_ > kRows ? rows_ - kRows : 0);
    NeedsRows(rows);
    return rows;
  }

  static float Flush(float x) {
    return __builtin_fabsf(x) < kSmallestNormal ? __builtin_copysignf(0.0f, x) : x;
  }
  static float Number(const uint8_t* p) {
    uint16_t half;
    memcpy(&half, p, sizeof(half));
    const uint32_t bits = uint32_t{half} << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return Flush(x);
  }

  // sum[n] = fma(a, b[n], sum[n]), flushed.
  static void AddProducts(float a, const float* b, float* sum) {
    float next[kColumns];
    int tiny = 0;
    for (int n = 0; n < kColumns; ++n) {
      next[n] = __builtin_fmaf(a, b[n], sum[n]);
      const float size = __builtin_fabsf(next[n]);
      tiny |= static_cast<int>(size <= kSmallestNormal) & static_cast<int>(size > 0.0f);
    }
    for (int n = 0; tiny != 0 && n < kColumns; ++n) next[n] = FlushedFma(a, b[n], sum[n], next[n]);
    memcpy(sum, next, sizeof(next));
  }
  // `rounded` is fma(a, b, c). What counts is whether the result is denormal after rounding to 24
  // bits whatever its exponent, so it is rounded again where the exponents have room. There: if a
  // result is tiny and not 0, a and c are below 2^30.
  static float FlushedFma(float a, float b, float c, float rounded) {
    if (rounded == 0.0f || __builtin_fabsf(rounded) > kSmallestNormal) return rounded;
    constexpr float kUp = 0x1p64f;
    const float scaled = __builtin_fmaf(a * kUp, b, c * kUp);
    return __builtin_fabsf(scaled) < kSmallestNormal * kUp ? __builtin_copysignf(0.0f, rounded)
                                                           : rounded;
  }

  int64_t rows_ = 0;
  float sum_[2][2][kRows][kColumns];
  float a_[2][kRows][kNumbers];
  float b_[2][kPairs][2][kColumns];
};

}  // namespace
}  // namespace lucid::LUCID_ISA
