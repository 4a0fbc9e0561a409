// Codecs of the legacy block types Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 values with one f16 scale d,
// and in the _1 types an f16 minimum m. Entry points: codecs.h; layouts: blocks.h.
//
// Encoding rounds as the format's reference does (truncation after adding a half, or half away from
// zero for Q8_0), so that equal input gives equal files.
#include <algorithm>
#include <cmath>

#include "tensor/codecs/codecs.h"

namespace lucid::codecs {
namespace {

constexpr int kHalf = 16;  // values per nibble half of a block

// A quantised level from a scaled value. Not finite where the scale is so small that its inverse
// overflows, or the input is not finite: level 0, as the conversion instruction of x86 gives.
int Level(float scaled, int top) {
  if (!std::isfinite(scaled)) return 0;
  return std::clamp(static_cast<int>(scaled), 0, top);
}

float Inverse(float d) {
  return d == 0.0f ? 0.0f : 1.0f / d;
}

// The value of largest magnitude, with its sign; the first of equals.
float SignedMax(const float* x) {
  float best = x[0];
  for (int i = 1; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  }
  return best;
}

// Splits 5-bit levels into nibbles and the word of fifth bits.
void PackFifth(const int* levels, uint8_t* qh, uint8_t* qs) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(levels[i] >> 4) << i;
  for (int i = 0; i < 4; ++i) qh[i] = static_cast<uint8_t>(high >> (8 * i));
  for (int i = 0; i < kHalf; ++i) {
    qs[i] = static_cast<uint8_t>((levels[i] & 15) | ((levels[i + kHalf] & 15) << 4));
  }
}

void DecodeBlockQ4_0(const BlockQ4_0& b, float* y) {
  const float d = b.d.value();
  for (int i = 0; i < kHalf; ++i) {
    y[i] = d * static_cast<float>((b.qs[i] & 15) - 8);
    y[i + kHalf] = d * static_cast<float>((b.qs[i] >> 4) - 8);
  }
}

void DecodeBlockQ4_1(const BlockQ4_1& b, float* y) {
  const float d = b.d.value();
  const float m = b.m.value();
  for (int i = 0; i < kHalf; ++i) {
    y[i] = d * static_cast<float>(b.qs[i] & 15) + m;
    y[i + kHalf] = d * static_cast<float>(b.qs[i] >> 4) + m;
  }
}

void DecodeBlockQ5_0(const BlockQ5_0& b, float* y) {
  const float d = b.d.value();
  const uint32_t high = LoadU32(b.qh);
  for (int i = 0; i < kHalf; ++i) {
    const int low_bit = static_cast<int>((high >> i) & 1) << 4;
    const int high_bit = static_cast<int>((high >> (i + kHalf)) & 1) << 4;
    y[i] = d * static_cast<float>(((b.qs[i] & 15) | low_bit) - 16);
    y[i + kHalf] = d * static_cast<float>(((b.qs[i] >> 4) | high_bit) - 16);
  }
}

void DecodeBlockQ5_1(const BlockQ5_1& b, float* y) {
  const float d = b.d.value();
  const float m = b.m.value();
  const uint32_t high = LoadU32(b.qh);
  for (int i = 0; i < kHalf; ++i) {
    const int low_bit = static_cast<int>((high >> i) & 1) << 4;
    const int high_bit = static_cast<int>((high >> (i + kHalf)) & 1) << 4;
    y[i] = d * static_cast<float>((b.qs[i] & 15) | low_bit) + m;
    y[i + kHalf] = d * static_cast<float>((b.qs[i] >> 4) | high_bit) + m;
  }
}

void DecodeBlockQ8_0(const BlockQ8_0& b, float* y) {
  const float d = b.d.value();
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(b.qs[i]) * d;
}

void DecodeBlockQ8_1(const BlockQ8_1& b, float* y) {
  const float d = b.d.value();
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(b.qs[i]) * d;
}

void EncodeBlockQ4_0(const float* x, BlockQ4_0& b) {
  const float d = SignedMax(x) / -8.0f;
  const float inverse = Inverse(d);
  b.d.Set(d);
  for (int i = 0; i < kHalf; ++i) {
    const int low = Level(x[i] * inverse + 8.5f, 15);
    const int high = Level(x[i + kHalf] * inverse + 8.5f, 15);
    b.qs[i] = static_cast<uint8_t>(low | (high << 4));
  }
}

void EncodeBlockQ4_1(const float* x, BlockQ4_1& b) {
  const auto [min, max] = std::minmax_element(x, x + 32);
  const float d = (*max - *min) / 15.0f;
  const float inverse = Inverse(d);
  b.d.Set(d);
  b.m.Set(*min);
  for (int i = 0; i < kHalf; ++i) {
    const int low = Level((x[i] - *min) * inverse + 0.5f, 15);
    const int high = Level((x[i + kHalf] - *min) * inverse + 0.5f, 15);
    b.qs[i] = static_cast<uint8_t>(low | (high << 4));
  }
}

void EncodeBlockQ5_0(const float* x, BlockQ5_0& b) {
  const float d = SignedMax(x) / -16.0f;
  const float inverse = Inverse(d);
  b.d.Set(d);
  int levels[32];
  for (int i = 0; i < 32; ++i) levels[i] = Level(x[i] * inverse + 16.5f, 31);
  PackFifth(levels, b.qh, b.qs);
}

void EncodeBlockQ5_1(const float* x, BlockQ5_1& b) {
  const auto [min, max] = std::minmax_element(x, x + 32);
  const float d = (*max - *min) / 31.0f;
  const float inverse = Inverse(d);
  b.d.Set(d);
  b.m.Set(*min);
  int levels[32];
  for (int i = 0; i < 32; ++i) levels[i] = Level((x[i] - *min) * inverse + 0.5f, 31);
  PackFifth(levels, b.qh, b.qs);
}

void EncodeBlockQ8_0(const float* x, BlockQ8_0& b) {
  const float d = std::fabs(SignedMax(x)) / 127.0f;
  const float inverse = Inverse(d);
  b.d.Set(d);
  for (int i = 0; i < 32; ++i) {
    const float scaled = std::round(x[i] * inverse);
    b.qs[i] = std::isfinite(scaled) ? static_cast<int8_t>(std::clamp(scaled, -127.0f, 127.0f))
                                    : int8_t{0};
  }
}

}  // namespace

void DecodeQ4_0(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ4_0, 32, DecodeBlockQ4_0>(src, dst, n);
}
void EncodeQ4_0(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockQ4_0, 32, EncodeBlockQ4_0>(src, dst, n);
}
void DecodeQ4_1(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ4_1, 32, DecodeBlockQ4_1>(src, dst, n);
}
void EncodeQ4_1(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockQ4_1, 32, EncodeBlockQ4_1>(src, dst, n);
}
void DecodeQ5_0(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ5_0, 32, DecodeBlockQ5_0>(src, dst, n);
}
void EncodeQ5_0(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockQ5_0, 32, EncodeBlockQ5_0>(src, dst, n);
}
void DecodeQ5_1(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ5_1, 32, DecodeBlockQ5_1>(src, dst, n);
}
void EncodeQ5_1(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockQ5_1, 32, EncodeBlockQ5_1>(src, dst, n);
}
void DecodeQ8_0(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ8_0, 32, DecodeBlockQ8_0>(src, dst, n);
}
void EncodeQ8_0(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockQ8_0, 32, EncodeBlockQ8_0>(src, dst, n);
}
void DecodeQ8_1(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ8_1, 32, DecodeBlockQ8_1>(src, dst, n);
}

}  // namespace lucid::codecs
