// The codecs of KvType, one value after the other: what the vector kernels of every instruction set
// must reproduce bit for bit. Entry points: kv_type.h.
//
// Scales and minimums are float16 numbers rounded outwards (a scale up, a minimum down), so that
// every finite value within float16's range is at most half a step from its code, small rows
// (denormal scales) included. Beyond that range codes saturate; no scale is ever infinite or NaN.
#include "tensor/kv_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace lucid {
namespace {

struct TypeRow {
  KvType type;
  std::string_view name;
};
constexpr TypeRow kRows[] = {
    {KvType::kF32, "f32"},   {KvType::kF16, "f16"},     {KvType::kBF16, "bf16"},
    {KvType::kInt8, "int8"}, {KvType::kFp8, "fp8"},     {KvType::kInt4, "int4"},
    {KvType::kInt2, "int2"}, {KvType::kKivi2, "kivi2"},
};
constexpr auto kTypes = [] {
  std::array<KvType, std::size(kRows)> types{};
  for (size_t i = 0; i < types.size(); ++i) types[i] = kRows[i].type;
  return types;
}();

constexpr int64_t kScaleBytes = 2;          // a float16
constexpr int64_t kAffineBytes = 4;         // scale and minimum
constexpr uint16_t kLargestHalf = 0x7bffu;  // 65504

void Put(std::byte* dst, uint16_t value) {
  std::memcpy(dst, &value, sizeof(value));
}
float GetHalf(const std::byte* src) {
  uint16_t bits;
  std::memcpy(&bits, src, sizeof(bits));
  return F16ToF32(bits);
}

// The least finite float16 that is not below x >= 0; the largest one where there is none.
uint16_t HalfNotBelow(float x) {
  uint16_t half = F32ToF16(x);
  if (F16ToF32(half) < x) ++half;
  return std::min(half, kLargestHalf);
}
// The largest finite float16 that is not above x; the lowest one where there is none.
uint16_t HalfNotAbove(float x) {
  if (x < 0) return static_cast<uint16_t>(0x8000u | HalfNotBelow(-x));
  uint16_t half = F32ToF16(x);
  if (F16ToF32(half) > x) --half;
  return std::min(half, kLargestHalf);
}

// To the nearest integer, ties to even, within [low, high]; a NaN gives `low`. |low|, |high| <
// 2^22.
inline int32_t Code(float x, float low, float high) {
  x = x > low ? x : low;
  x = x < high ? x : high;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the unit in the last place is 1
  return static_cast<int32_t>((x + kMagic) - kMagic);
}

float Inverse(float scale) {
  return scale > 0 ? 1.0f / scale : 0.0f;
}

float LargestMagnitude(const float* src, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(src[i]);
    most = a > most ? a : most;
  }
  return most;
}

// Groups of kKvGroup values; the scales follow all codes of the row.
void EncodeInt8(const float* src, std::byte* dst, int64_t dim) {
  std::byte* scales = dst + dim;
  for (int64_t begin = 0; begin < dim; begin += kKvGroup, scales += kScaleBytes) {
    const int64_t end = std::min(dim, begin + kKvGroup);
    const uint16_t half = HalfNotBelow(LargestMagnitude(src + begin, end - begin) / 127.0f);
    const float inverse = Inverse(F16ToF32(half));
    for (int64_t i = begin; i < end; ++i) {
      dst[i] = static_cast<std::byte>(Code(src[i] * inverse, -127.0f, 127.0f));
    }
    Put(scales, half);
  }
}

void DecodeInt8(const std::byte* src, float* dst, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) {
    const float scale = GetHalf(src + dim + i / kKvGroup * kScaleBytes);
    dst[i] = scale * static_cast<float>(static_cast<int8_t>(src[i]));
  }
}

// |x| <= 448 rounded to the nearest E4M3 number, without the detour over its code.
inline float RoundedE4M3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t normal = (bits + 0x7ffffu + ((bits >> 20) & 1u)) & 0xfff00000u;
  constexpr float kMagic = 12582912.0f * 0x1p-9f;  // the unit in the last place is 2^-9
  const float denormal = (x + kMagic) - kMagic;
  return std::fabs(x) >= 0x1p-6f ? std::bit_cast<float>(normal) : denormal;
}

// The step of a float depends on where in its power of two it lies, so the scale decides how well
// the large values of a row are met: of several between largest / 448 and twice that, the one with
// the least squared error.
void EncodeFp8(const float* src, std::byte* dst, int64_t dim) {
  constexpr int kScales = 8;
  constexpr float kSteps[kScales] = {1.0f,        1.09050773f, 1.18920711f, 1.29683955f,
                                     1.41421356f, 1.54221083f, 1.68179283f, 1.83400809f};
  const float least = LargestMagnitude(src, dim) / 448.0f;
  uint16_t best = HalfNotBelow(least);
  float best_error = INFINITY;
  for (const float step : kSteps) {
    const uint16_t half = HalfNotBelow(least * step);
    const float scale = F16ToF32(half);
    const float inverse = Inverse(scale);
    float error = 0;
    for (int64_t i = 0; i < dim; ++i) {
      const float difference = RoundedE4M3(src[i] * inverse) * scale - src[i];
      error += difference * difference;
    }
    if (error < best_error) {
      best_error = error;
      best = half;
    }
  }
  const float inverse = Inverse(F16ToF32(best));
  for (int64_t i = 0; i < dim; ++i) {
    dst[i] = static_cast<std::byte>(F32ToF8E4M3(src[i] * inverse));
  }
  Put(dst + dim, best);
}

void DecodeFp8(const std::byte* src, float* dst, int64_t dim) {
  const float scale = GetHalf(src + dim);
  for (int64_t i = 0; i < dim; ++i) dst[i] = scale * F8E4M3ToF32(static_cast<uint8_t>(src[i]));
}

// Scale and minimum of values that codes 0 .. levels shall span.
struct Affine {
  uint16_t scale;
  uint16_t min;
};
Affine SpanOf(const float* src, int64_t stride, int64_t n, float levels) {
  float low = INFINITY;
  float high = -INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    const float x = src[i * stride];
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  if (low > high) return {0, 0};  // nothing but NaN
  const uint16_t min = HalfNotAbove(low);
  return {HalfNotBelow(std::max(0.0f, (high - F16ToF32(min)) / levels)), min};
}

// Groups of kKvGroup values, each scale, minimum and codes of kBits bits. Of n values in `bytes`
// bytes, value i lies in byte i % bytes, above those of the values before it there.
template <int kBits>
void EncodeGroups(const float* src, std::byte* dst, int64_t dim) {
  constexpr int64_t kPerByte = 8 / kBits;
  constexpr auto kLevels = static_cast<float>((1 << kBits) - 1);
  for (int64_t begin = 0; begin < dim; begin += kKvGroup) {
    const int64_t n = std::min(kKvGroup, dim - begin);
    const int64_t bytes = (n + kPerByte - 1) / kPerByte;
    const Affine span = SpanOf(src + begin, 1, n, kLevels);
    const float min = F16ToF32(span.min);
    const float inverse = Inverse(F16ToF32(span.scale));
    uint32_t codes[kKvGroup] = {};
    for (int64_t i = 0; i < n; ++i) {
      codes[i] = static_cast<uint32_t>(Code((src[begin + i] - min) * inverse, 0.0f, kLevels));
    }
    Put(dst, span.scale);
    Put(dst + kScaleBytes, span.min);
    dst += kAffineBytes;
    for (int64_t b = 0; b < bytes; ++b) {
      uint32_t packed = 0;
      for (int64_t j = 0; j < kPerByte && b + j * bytes < n; ++j) {
        packed |= codes[b + j * bytes] << (kBits * j);
      }
      dst[b] = static_cast<std::byte>(packed);
    }
    dst += bytes;
  }
}

template <int kBits>
void DecodeGroups(const std::byte* src, float* dst, int64_t dim) {
  constexpr int64_t kPerByte = 8 / kBits;
  constexpr uint32_t kMask = (1u << kBits) - 1u;
  for (int64_t begin = 0; begin < dim; begin += kKvGroup) {
    const int64_t n = std::min(kKvGroup, dim - begin);
    const int64_t bytes = (n + kPerByte - 1) / kPerByte;
    const float scale = GetHalf(src);
    const float min = GetHalf(src + kScaleBytes);
    src += kAffineBytes;
    for (int64_t i = 0; i < n; ++i) {
      const auto packed = static_cast<uint32_t>(src[i % bytes]);
      dst[begin + i] = scale * static_cast<float>((packed >> (kBits * (i / bytes))) & kMask) + min;
    }
    src += bytes;
  }
}

int64_t GroupsBytes(int64_t dim, int64_t bits) {
  const int64_t full = dim / kKvGroup;
  const int64_t rest = dim % kKvGroup;
  const int64_t tail = rest == 0 ? 0 : kAffineBytes + (rest * bits + 7) / 8;
  return full * (kAffineBytes + kKvGroup * bits / 8) + tail;
}

}  // namespace

std::string_view Name(KvType type) {
  return kRows[static_cast<size_t>(type)].name;
}

std::optional<KvType> KvTypeFromName(std::string_view name) {
  for (const TypeRow& row : kRows) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::span<const KvType> AllKvTypes() {
  return kTypes;
}

int64_t KvRowBytes(KvType type, int64_t dim) {
  switch (type) {
    case KvType::kF32:
      return 4 * dim;
    case KvType::kF16:
    case KvType::kBF16:
      return 2 * dim;
    case KvType::kInt8:
      return dim + (dim + kKvGroup - 1) / kKvGroup * kScaleBytes;
    case KvType::kFp8:
      return dim > 0 ? dim + kScaleBytes : 0;
    case KvType::kInt4:
      return GroupsBytes(dim, 4);
    case KvType::kInt2:
    case KvType::kKivi2:
      return GroupsBytes(dim, 2);
  }
  LUCID_CHECK(false, "no such cache type");
}

int64_t KvHeadBytes(KvType type, bool keys, int64_t dim, int64_t block_size) {
  if (keys && !IsRowType(type)) return dim * (kAffineBytes + block_size / 4);
  return block_size * KvRowBytes(type, dim);
}

void EncodeKvRow(KvType type, const float* src, std::byte* dst, int64_t dim) {
  switch (type) {
    case KvType::kF32:
      if (dim > 0) std::memcpy(dst, src, static_cast<size_t>(dim) * sizeof(float));
      return;
    case KvType::kF16:
      for (int64_t i = 0; i < dim; ++i) Put(dst + 2 * i, F32ToF16(src[i]));
      return;
    case KvType::kBF16:
      for (int64_t i = 0; i < dim; ++i) Put(dst + 2 * i, F32ToBf16(src[i]));
      return;
    case KvType::kInt8:
      return EncodeInt8(src, dst, dim);
    case KvType::kFp8:
      if (dim > 0) EncodeFp8(src, dst, dim);
      return;
    case KvType::kInt4:
      return EncodeGroups<4>(src, dst, dim);
    case KvType::kInt2:
    case KvType::kKivi2:
      return EncodeGroups<2>(src, dst, dim);
  }
}

void DecodeKvRow(KvType type, const std::byte* src, float* dst, int64_t dim) {
  switch (type) {
    case KvType::kF32:
      if (dim > 0) std::memcpy(dst, src, static_cast<size_t>(dim) * sizeof(float));
      return;
    case KvType::kF16:
      for (int64_t i = 0; i < dim; ++i) dst[i] = GetHalf(src + 2 * i);
      return;
    case KvType::kBF16:
      for (int64_t i = 0; i < dim; ++i) {
        uint16_t bits;
        std::memcpy(&bits, src + 2 * i, sizeof(bits));
        dst[i] = Bf16ToF32(bits);
      }
      return;
    case KvType::kInt8:
      return DecodeInt8(src, dst, dim);
    case KvType::kFp8:
      if (dim > 0) DecodeFp8(src, dst, dim);
      return;
    case KvType::kInt4:
      return DecodeGroups<4>(src, dst, dim);
    case KvType::kInt2:
    case KvType::kKivi2:
      return DecodeGroups<2>(src, dst, dim);
  }
}

void EncodeKiviKeys(const float* src, int64_t stride, std::byte* dst, int64_t dim,
                    int64_t block_size) {
  LUCID_CHECK(block_size % 4 == 0, "kivi2 packs 4 positions into a byte; a block has {}",
              block_size);
  std::byte* mins = dst + kScaleBytes * dim;
  std::byte* codes = mins + kScaleBytes * dim;
  for (int64_t c = 0; c < dim; ++c) {
    const Affine span = SpanOf(src + c, stride, block_size, 3.0f);
    const float min = F16ToF32(span.min);
    const float inverse = Inverse(F16ToF32(span.scale));
    Put(dst + kScaleBytes * c, span.scale);
    Put(mins + kScaleBytes * c, span.min);
    for (int64_t p = 0; p < block_size; p += 4) {
      int32_t packed = 0;
      for (int64_t j = 0; j < 4; ++j) {
        packed |= Code((src[(p + j) * stride + c] - min) * inverse, 0.0f, 3.0f) << (2 * j);
      }
      codes[p / 4 * dim + c] = static_cast<std::byte>(packed);
    }
  }
}

void DecodeKiviKeys(const std::byte* src, float* dst, int64_t stride, int64_t dim,
                    int64_t block_size) {
  const std::byte* mins = src + kScaleBytes * dim;
  const std::byte* codes = mins + kScaleBytes * dim;
  for (int64_t p = 0; p < block_size; ++p) {
    for (int64_t c = 0; c < dim; ++c) {
      const auto packed = static_cast<uint32_t>(codes[p / 4 * dim + c]);
      dst[p * stride + c] =
          GetHalf(src + kScaleBytes * c) * static_cast<float>((packed >> (2 * (p % 4))) & 3u) +
          GetHalf(mins + kScaleBytes * c);
    }
  }
}

}  // namespace lucid
