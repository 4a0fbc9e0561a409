// Codecs of the 4-bit float types MXFP4 and NVFP4: e2m1 values with a block scale. Entry points:
// codecs.h.
//
// Source: OCP Microscaling Formats (MX) 1.0. The e2m1 values are kept doubled, as integers, so the
// scales are halved (blocks.h).
#include <algorithm>
#include <cmath>

#include "tensor/codecs/codecs.h"

namespace lucid::codecs {
namespace {

void DecodeBlockMXFP4(const BlockMXFP4& b, float* y) {
  const float d = E8m0Half(b.e);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kE2m1Doubled[b.qs[i] & 15]);
    y[i + 16] = d * static_cast<float>(kE2m1Doubled[b.qs[i] >> 4]);
  }
}

// The index of the value nearest to x / d; the first of equals.
int NearestE2m1(float x, float d) {
  int best = 0;
  float best_error = std::fabs(d * static_cast<float>(kE2m1Doubled[0]) - x);
  for (int i = 1; i < 16; ++i) {
    const float error = std::fabs(d * static_cast<float>(kE2m1Doubled[i]) - x);
    if (error < best_error) {
      best_error = error;
      best = i;
    }
  }
  return best;
}

void EncodeBlockMXFP4(const float* x, BlockMXFP4& b) {
  float max = 0.0f;
  for (int i = 0; i < 32; ++i) max = std::max(max, std::fabs(x[i]));
  // 2 is the exponent of the largest e2m1 value, 6; 127 the bias of e8m0.
  const float exponent = max > 0.0f ? std::floor(std::log2(max)) - 2.0f + 127.0f : 0.0f;
  b.e = static_cast<uint8_t>(std::clamp(exponent, 0.0f, 254.0f));
  const float d = E8m0Half(b.e);
  for (int i = 0; i < 16; ++i) {
    b.qs[i] = static_cast<uint8_t>(NearestE2m1(x[i], d) | (NearestE2m1(x[i + 16], d) << 4));
  }
}

// Four parts of 16 values, each like an MXFP4 block of half the size with its own e4m3 scale.
void DecodeBlockNVFP4(const BlockNVFP4& b, float* y) {
  for (int part = 0; part < 4; ++part) {
    const float d = UE4m3Half(b.d[part]);
    const uint8_t* qs = b.qs + part * 8;
    for (int i = 0; i < 8; ++i) {
      y[part * 16 + i] = d * static_cast<float>(kE2m1Doubled[qs[i] & 15]);
      y[part * 16 + i + 8] = d * static_cast<float>(kE2m1Doubled[qs[i] >> 4]);
    }
  }
}

}  // namespace

void DecodeMXFP4(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockMXFP4, 32, DecodeBlockMXFP4>(src, dst, n);
}
void EncodeMXFP4(const float* src, std::byte* dst, int64_t n) {
  EncodeBlocks<BlockMXFP4, 32, EncodeBlockMXFP4>(src, dst, n);
}
void DecodeNVFP4(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockNVFP4, 64, DecodeBlockNVFP4>(src, dst, n);
}

}  // namespace lucid::codecs
