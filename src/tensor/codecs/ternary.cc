// Codecs of the ternary types TQ1_0 and TQ2_0: 256 values of -d, 0, d. Entry points: codecs.h.
//
// TQ1_0 packs five base-3 digits into a byte as the fraction digits / 243 of 256, rounded up:
// multiplying by 3^k modulo 256 drops the first k digits, and times 3 over 256 then reads the next
// one. TQ2_0 uses 2 bits.
#include <algorithm>
#include <cmath>

#include "tensor/codecs/codecs.h"

namespace lucid::codecs {
namespace {

constexpr int kPowersOf3[5] = {1, 3, 9, 27, 81};

// `digits` values from each of `count` bytes, digit k of byte i going to y[k * count + i].
void UnpackTrits(const uint8_t* bytes, int count, int digits, float d, float* y) {
  for (int k = 0; k < digits; ++k) {
    for (int i = 0; i < count; ++i) {
      const int rest = (bytes[i] * kPowersOf3[k]) & 255;
      y[k * count + i] = d * static_cast<float>(((rest * 3) >> 8) - 1);
    }
  }
}

// The inverse, from digits 0, 1, 2.
void PackTrits(const uint8_t* trits, int count, int digits, uint8_t* bytes) {
  for (int i = 0; i < count; ++i) {
    int number = 0;
    for (int k = 0; k < digits; ++k) number += trits[k * count + i] * kPowersOf3[4 - k];
    bytes[i] = static_cast<uint8_t>((number * 256 + 242) / 243);
  }
}

// Fills `trits` with round(x / d) + 1 and returns d, the largest magnitude.
float Ternarise(const float* x, uint8_t* trits) {
  float d = 0.0f;
  for (int i = 0; i < kSuperBlock; ++i) d = std::max(d, std::fabs(x[i]));
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  for (int i = 0; i < kSuperBlock; ++i) {
    const float scaled = std::round(x[i] * inverse);
    const int level = std::isfinite(scaled) ? static_cast<int>(std::clamp(scaled, -1.0f, 1.0f)) : 0;
    trits[i] = static_cast<uint8_t>(level + 1);
  }
  return d;
}

// Values 0-159: 5 digits of bytes 0-31; 160-239: 5 digits of bytes 32-47; 240-255: 4 digits of qh.
void DecodeBlockTQ1_0(const BlockTQ1_0& b, float* y) {
  const float d = b.d.value();
  UnpackTrits(b.qs, 32, 5, d, y);
  UnpackTrits(b.qs + 32, 16, 5, d, y + 160);
  UnpackTrits(b.qh, 4, 4, d, y + 240);
}

void EncodeBlockTQ1_0(const float* x, BlockTQ1_0& b) {
  uint8_t trits[kSuperBlock];
  b.d.Set(Ternarise(x, trits));
  PackTrits(trits, 32, 5, b.qs);
  PackTrits(trits + 160, 16, 5, b.qs + 32);
  PackTrits(trits + 240, 4, 4, b.qh);
}

void DecodeBlockTQ2_0(const BlockTQ2_0& b, float* y) {
  const float d = b.d.value();
  for (int part = 0; part < 8; ++part) {
    const uint8_t* qs = b.qs + part / 4 * 32;
    const int shift = part % 4 * 2;
    for (int i = 0; i < 32; ++i) {
      y[part * 32 + i] = d * static_cast<float>(((qs[i] >> shift) & 3) - 1);
    }
  }
}

void EncodeBlockTQ2_0(const float* x, BlockTQ2_0& b) {
  uint8_t trits[kSuperBlock];
  b.d.Set(Ternarise(x, trits));
  for (int i = 0; i < 64; ++i) {
    const uint8_t* first = trits + i / 32 * 128 + i % 32;
    b.qs[i] =
        static_cast<uint8_t>(first[0] | (first[32] << 2) | (first[64] << 4) | (first[96] << 6));
  }
}

}  // namespace

void DecodeTQ1_0(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockTQ1_0, kSuperBlock, DecodeBlockTQ1_0>(src, dst, n);
}
void EncodeTQ1_0(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockTQ1_0, kSuperBlock, EncodeBlockTQ1_0>(src, dst, n);
}
void DecodeTQ2_0(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockTQ2_0, kSuperBlock, DecodeBlockTQ2_0>(src, dst, n);
}
void EncodeTQ2_0(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockTQ2_0, kSuperBlock, EncodeBlockTQ2_0>(src, dst, n);
}

}  // namespace lucid::codecs
