// Decoders of the K-quants Q2_K to Q6_K, and Q8_K: super-blocks of 256 values in parts of 16 or 32
// that have small integer scales (and minima), scaled by f16 numbers per super-block. Entry points:
// codecs.h.
//
// Packing, common to all: byte i of a group of 32 bytes holds value i of several consecutive parts
// of 32, the first in its lowest bits.
#include <cstring>

#include "tensor/codecs/codecs.h"

namespace lucid::codecs {
namespace {

// value = (d * scale) * q - (dmin * min), scale and min 4 bits per 16 values, q 2 bits.
void DecodeBlockQ2_K(const BlockQ2_K& b, float* y) {
  const float d = b.d.value();
  const float dmin = b.dmin.value();
  for (int part = 0; part < 16; ++part) {
    const float scale = d * static_cast<float>(b.scales[part] & 15);
    const float min = dmin * static_cast<float>(b.scales[part] >> 4);
    const uint8_t* qs = b.qs + (part / 8) * 32 + (part % 2) * 16;
    const int shift = (part % 8) / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      y[part * 16 + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
    }
  }
}

// Scale of part `part` (0 to 15): 6 bits, minus 32. Low 4 bits in the halves of bytes 0-7, high 2
// bits in bytes 8-11, part p at bit 2 (p / 4) of byte 8 + p % 4.
int Q3Scale(const uint8_t* scales, int part) {
  const int low = (scales[part % 8] >> (part / 8 * 4)) & 15;
  const int high = (scales[8 + part % 4] >> (part / 4 * 2)) & 3;
  return (low | (high << 4)) - 32;
}

// value = (d * scale) * q, q 3 bits: 2 in qs; where the bit of hmask is clear, 4 is subtracted.
void DecodeBlockQ3_K(const BlockQ3_K& b, float* y) {
  const float d = b.d.value();
  for (int part = 0; part < 16; ++part) {
    const float scale = d * static_cast<float>(Q3Scale(b.scales, part));
    const uint8_t* qs = b.qs + (part / 8) * 32 + (part % 2) * 16;
    const uint8_t* hmask = b.hmask + (part % 2) * 16;
    const int shift = (part % 8) / 2 * 2;
    const int bit = part / 2;
    for (int i = 0; i < 16; ++i) {
      const int q = ((qs[i] >> shift) & 3) - (((hmask[i] >> bit) & 1) ^ 1) * 4;
      y[part * 16 + i] = scale * static_cast<float>(q);
    }
  }
}

// value = (d * scale) * q - (dmin * min), scale and min 6 bits per 32 values, q 4 bits.
void DecodeBlockQ4_K(const BlockQ4_K& b, float* y) {
  const float d = b.d.value();
  const float dmin = b.dmin.value();
  for (int part = 0; part < 8; ++part) {
    const ScaleMin sm = KScaleMin(b.scales, part);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    const uint8_t* qs = b.qs + part / 2 * 32;
    const int shift = part % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      y[part * 32 + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - min;
    }
  }
}

// As Q4_K with a fifth bit: bit `part` of qh.
void DecodeBlockQ5_K(const BlockQ5_K& b, float* y) {
  const float d = b.d.value();
  const float dmin = b.dmin.value();
  for (int part = 0; part < 8; ++part) {
    const ScaleMin sm = KScaleMin(b.scales, part);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    const uint8_t* qs = b.qs + part / 2 * 32;
    const int shift = part % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int q = ((qs[i] >> shift) & 15) | (((b.qh[i] >> part) & 1) << 4);
      y[part * 32 + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// value = (d * scale) * (q - 32), scale int8 per 16 values, q 6 bits: 4 in ql, 2 in qh.
void DecodeBlockQ6_K(const BlockQ6_K& b, float* y) {
  const float d = b.d.value();
  for (int part = 0; part < 8; ++part) {
    const uint8_t* ql = b.ql + part / 4 * 64 + part % 2 * 32;
    const uint8_t* qh = b.qh + part / 4 * 32;
    const int low_shift = part % 4 / 2 * 4;
    const int high_shift = part % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      const float scale = d * static_cast<float>(b.scales[part * 2 + half]);
      for (int i = half * 16; i < half * 16 + 16; ++i) {
        const int q = ((ql[i] >> low_shift) & 15) | (((qh[i] >> high_shift) & 3) << 4);
        y[part * 32 + i] = scale * static_cast<float>(q - 32);
      }
    }
  }
}

void DecodeBlockQ8_K(const BlockQ8_K& b, float* y) {
  float d;
  std::memcpy(&d, b.d, sizeof(d));
  for (int i = 0; i < kSuperBlock; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

}  // namespace

void DecodeQ2_K(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ2_K, kSuperBlock, DecodeBlockQ2_K>(src, dst, n);
}
void DecodeQ3_K(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ3_K, kSuperBlock, DecodeBlockQ3_K>(src, dst, n);
}
void DecodeQ4_K(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ4_K, kSuperBlock, DecodeBlockQ4_K>(src, dst, n);
}
void DecodeQ5_K(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ5_K, kSuperBlock, DecodeBlockQ5_K>(src, dst, n);
}
void DecodeQ6_K(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ6_K, kSuperBlock, DecodeBlockQ6_K>(src, dst, n);
}
void DecodeQ8_K(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockQ8_K, kSuperBlock, DecodeBlockQ8_K>(src, dst, n);
}

}  // namespace lucid::codecs
