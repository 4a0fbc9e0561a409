// Rows of the cache to floats, for every KvType.
//
// The values are those of the codecs in tensor/kv_type.cc, bit for bit: products of a float16 scale
// and a code are exact, so one rounding is left whether or not a multiply-add is fused.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/kv_place.h"

namespace lucid::LUCID_ISA {
namespace {

// Calls load(p) for each kLanes bytes at src, the last of which may be a copy with zeros behind it,
// and stores the result; dst has room for dim rounded up to kLanes.
template <typename LoadFn>
[[gnu::always_inline]] inline void DecodeBytes(const uint8_t* src, float* dst, int64_t dim,
                                               LoadFn&& load) {
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) Store(dst + i, load(src + i));
  if (i < dim) {
    uint8_t last[kLanes] = {};
    memcpy(last, src + i, static_cast<size_t>(dim - i));
    Store(dst + i, load(last));
  }
}

inline void DecodeInt8Row(const uint8_t* src, float* dst, int64_t dim) {
  const uint8_t* scales = src + dim;
  for (int64_t i = 0; i < dim; i += kKvGroup, scales += 2) {
    const F scale = SetHalf(scales);
    DecodeBytes(
        src + i, dst + i,
        Least(kKvGroup, dim - i), [&](const uint8_t* p) __attribute__((always_inline)) {
          return scale * LoadI8(p);
        });
  }
}

inline void DecodeFp8Row(const uint8_t* src, float* dst, int64_t dim) {
  const F scale = SetHalf(src + dim);
  DecodeBytes(
      src, dst,
      dim, [&](const uint8_t* p) __attribute__((always_inline)) { return scale * LoadE4M3(p); });
}

// The last, shorter group of a row: n values of kBits bits, then zeros up to a multiple of kLanes.
template <int kBits>
void DecodeShortGroup(const uint8_t* src, float* dst, int64_t n) {
  constexpr int64_t kPerByte = 8 / kBits;
  const int64_t bytes = (n + kPerByte - 1) / kPerByte;
  const float scale = HalfToFloat(src);
  const float min = HalfToFloat(src + 2);
  for (int64_t i = 0; i < n; ++i) {
    const int code = (src[4 + i % bytes] >> (kBits * (i / bytes))) & ((1 << kBits) - 1);
    dst[i] = scale * static_cast<float>(code) + min;
  }
  for (int64_t i = n; i < Padded(n); ++i) dst[i] = 0;
}

inline void DecodeInt4Row(const uint8_t* src, float* dst, int64_t dim) {
  int64_t i = 0;
  for (; i + kKvGroup <= dim; i += kKvGroup, src += 4 + kKvGroup / 2) {
    F d;
    F m;
    SetTwoHalves(src, &d, &m);
    const Nibbles n = AffineNibbles(src + 4, d, m, d, m);
#pragma GCC unroll 4
    for (int j = 0; j < kVectorsOf16; ++j) {
      Store(dst + i + j * kLanes, n.low[j]);
      Store(dst + i + 16 + j * kLanes, n.high[j]);
    }
  }
  if (i < dim) DecodeShortGroup<4>(src, dst + i, dim - i);
}

inline void DecodeInt2Row(const uint8_t* src, float* dst, int64_t dim) {
  int64_t i = 0;
  for (; i + kKvGroup <= dim; i += kKvGroup, src += 4 + kKvGroup / 4) {
    F d;
    F m;
    SetTwoHalves(src, &d, &m);
    F values[32 / kLanes];
    AffineGroup2(src + 4, d, m, values);
#pragma GCC unroll 8
    for (int j = 0; j < 32 / kLanes; ++j) Store(dst + i + j * kLanes, values[j]);
  }
  if (i < dim) DecodeShortGroup<2>(src, dst + i, dim - i);
}

inline void Prefetch(const uint8_t* p, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

// Rows [begin, begin + n) of one head's, at `src`, to rows of dst, ldd floats apart, each zero
// padded to a multiple of kLanes.
template <void (*kDecode)(const uint8_t*, float*, int64_t)>
inline void LoadRowsWith(const KvArray& a, const uint8_t* src, int64_t begin, int64_t n, float* dst,
                         int64_t ldd) {
  for (int64_t i = 0; i < n; ++i) {
    kDecode(src + (begin + i) * a.row_bytes, dst + i * ldd, a.dim);
  }
}

inline void LoadRows(const KvArray& a, const uint8_t* src, int64_t begin, int64_t n, float* dst,
                     int64_t ldd) {
  switch (a.type) {
    case KvType::kF32:
      return LoadRowsWith<DecodeRow<F32>>(a, src, begin, n, dst, ldd);
    case KvType::kF16:
      return LoadRowsWith<DecodeRow<F16>>(a, src, begin, n, dst, ldd);
    case KvType::kBF16:
      return LoadRowsWith<DecodeRow<Bf16>>(a, src, begin, n, dst, ldd);
    case KvType::kInt8:
      return LoadRowsWith<DecodeInt8Row>(a, src, begin, n, dst, ldd);
    case KvType::kFp8:
      return LoadRowsWith<DecodeFp8Row>(a, src, begin, n, dst, ldd);
    case KvType::kInt4:
      return LoadRowsWith<DecodeInt4Row>(a, src, begin, n, dst, ldd);
    case KvType::kInt2:
    case KvType::kKivi2:
      return LoadRowsWith<DecodeInt2Row>(a, src, begin, n, dst, ldd);
  }
}

// Positions [begin, end) of one head's packed keys (EncodeKiviKeys) to rows of dst.
inline void LoadKiviKeys(const uint8_t* src, int64_t begin, int64_t end, int64_t dim, float* dst,
                         int64_t ldd) {
  const uint8_t* mins = src + 2 * dim;
  const uint8_t* codes = mins + 2 * dim;
  for (int64_t c = 0; c < dim; c += kLanes) {
    const int64_t n = Least(kLanes, dim - c);
    uint8_t scale[2 * kLanes] = {};
    uint8_t min[2 * kLanes] = {};
    memcpy(scale, src + 2 * c, static_cast<size_t>(2 * n));
    memcpy(min, mins + 2 * c, static_cast<size_t>(2 * n));
    const F d = LoadF16(scale);
    const F m = LoadF16(min);
    for (int64_t row = begin / 4; 4 * row < end; ++row) {
      const uint8_t* p = codes + row * dim + c;
      uint8_t last[kLanes] = {};
      if (n < kLanes) {
        memcpy(last, p, static_cast<size_t>(n));
        p = last;
      }
      F keys[4];
      AffineCrumbs(p, d, m, keys);
#pragma GCC unroll 4
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t at = 4 * row + j - begin;
        if (at >= 0 && at < end - begin) Store(dst + at * ldd + c, keys[j]);
      }
    }
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
