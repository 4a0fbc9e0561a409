// Decoders of the I-quants: vectors of values looked up in a grid, times signs, times scales; and
// IQ4_NL and IQ4_XS, 4-bit indices into a fixed table of levels. Entry points: codecs.h; grids:
// iq_grids.h.
#include <bit>

#include "tensor/codecs/codecs.h"
#include "tensor/codecs/iq_grids.h"

namespace lucid::codecs {
namespace {

// Seven stored sign bits stand for eight: the number of negative values is even, so the last is the
// parity.
uint8_t EvenSigns(uint32_t index) {
  const uint32_t seven = index & 127u;
  return static_cast<uint8_t>(seven | (static_cast<uint32_t>(std::popcount(seven) & 1) << 7));
}

// y[i] = scale * vector[i], negated where bit first_sign + i of `signs` is set.
template <size_t kLength>
void WriteSigned(const std::array<int8_t, kLength>& vector, uint8_t signs, float scale, float* y) {
  for (size_t i = 0; i < kLength; ++i) {
    const float value = scale * static_cast<float>(vector[i]);
    y[i] = ((signs >> i) & 1) != 0 ? -value : value;
  }
}

// Per 32 values 8 bytes: four grid indices, then a word of four 7-bit sign indices and a 4-bit
// scale.
void DecodeBlockIQ2_XXS(const BlockIQ2_XXS& b, float* y) {
  const float d = b.d.value();
  for (int part = 0; part < 8; ++part) {
    const uint8_t* indices = b.qs + part * 8;
    const uint32_t word = LoadU32(indices + 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int k = 0; k < 4; ++k) {
      WriteSigned(kIq2XxsGrid[indices[k]], EvenSigns(word >> (7 * k)), scale,
                  y + part * 32 + k * 8);
    }
  }
}

// Per 8 values a word of a 9-bit grid index and a 7-bit sign index; 4-bit scales per 16 values.
void DecodeBlockIQ2_XS(const BlockIQ2_XS& b, float* y) {
  const float d = b.d.value();
  for (int k = 0; k < 32; ++k) {
    const uint32_t word = LoadU16(b.qs + 2 * k);
    const int scale4 = (b.scales[k / 4] >> (k / 2 % 2 * 4)) & 15;
    const float scale = d * (0.5f + static_cast<float>(scale4)) * 0.25f;
    WriteSigned(kIq2XsGrid[word & 511u], EvenSigns(word >> 9), scale, y + k * 8);
  }
}

// Per 8 values a 10-bit grid index (2 bits in qh) and all eight signs; 4-bit scales per 16 values.
void DecodeBlockIQ2_S(const BlockIQ2_S& b, float* y) {
  const float d = b.d.value();
  for (int k = 0; k < 32; ++k) {
    const int index = b.qs[k] | (((b.qh[k / 4] >> (k % 4 * 2)) & 3) << 8);
    const int scale4 = (b.scales[k / 4] >> (k / 2 % 2 * 4)) & 15;
    const float scale = d * (0.5f + static_cast<float>(scale4)) * 0.25f;
    WriteSigned(kIq2SGrid[index], b.signs[k], scale, y + k * 8);
  }
}

// Eight grid indices of 4 values per 32, then for each 32 values a word as in IQ2_XXS.
void DecodeBlockIQ3_XXS(const BlockIQ3_XXS& b, float* y) {
  const float d = b.d.value();
  for (int part = 0; part < 8; ++part) {
    const uint32_t word = LoadU32(b.scales_signs + part * 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int k = 0; k < 4; ++k) {
      const uint8_t signs = EvenSigns(word >> (7 * k));
      const uint8_t* indices = b.qs + part * 8 + k * 2;
      float* out = y + part * 32 + k * 8;
      WriteSigned(kIq3XxsGrid[indices[0]], signs, scale, out);
      WriteSigned(kIq3XxsGrid[indices[1]], static_cast<uint8_t>(signs >> 4), scale, out + 4);
    }
  }
}

// 9-bit grid indices of 4 values (1 bit in qh), all signs, 4-bit odd scales per 32 values.
void DecodeBlockIQ3_S(const BlockIQ3_S& b, float* y) {
  const float d = b.d.value();
  for (int k = 0; k < 64; ++k) {
    const int index = b.qs[k] | (((b.qh[k / 8] >> (k % 8)) & 1) << 8);
    const int scale4 = (b.scales[k / 16] >> (k / 8 % 2 * 4)) & 15;
    const float scale = d * static_cast<float>(1 + 2 * scale4);
    WriteSigned(kIq3SGrid[index], static_cast<uint8_t>(b.signs[k / 2] >> (k % 2 * 4)), scale,
                y + k * 4);
  }
}

constexpr float kIq1Delta = 0.125f;

void WriteShifted(const std::array<int8_t, 8>& vector, float delta, float scale, float* y) {
  for (int i = 0; i < 8; ++i) y[i] = scale * (static_cast<float>(vector[i]) + delta);
}

// Per 32 values a word in qh: four times 3 high bits of a grid index, a 3-bit odd scale, the sign
// of delta.
void DecodeBlockIQ1_S(const BlockIQ1_S& b, float* y) {
  const float d = b.d.value();
  for (int part = 0; part < 8; ++part) {
    const uint32_t word = LoadU16(b.qh + 2 * part);
    const float scale = d * static_cast<float>(2 * ((word >> 12) & 7u) + 1);
    const float delta = (word & 0x8000u) != 0 ? -kIq1Delta : kIq1Delta;
    for (int k = 0; k < 4; ++k) {
      const uint32_t index = b.qs[part * 4 + k] | (((word >> (3 * k)) & 7u) << 8);
      WriteShifted(kIq1SGrid[index], delta, scale, y + part * 32 + k * 8);
    }
  }
}

// Four words of scales: 3-bit odd scales per 16 values in the low 12 bits, a quarter of the f16 d
// above. qh: per 8 values 3 high bits of the grid index and the sign of delta.
void DecodeBlockIQ1_M(const BlockIQ1_M& b, float* y) {
  uint32_t d_bits = 0;
  for (int i = 0; i < 4; ++i) d_bits |= (uint32_t{LoadU16(b.scales + 2 * i)} >> 12) << (4 * i);
  const float d = F16ToF32(static_cast<uint16_t>(d_bits));
  for (int k = 0; k < 32; ++k) {
    const uint32_t word = LoadU16(b.scales + k / 8 * 2);
    const float scale = d * static_cast<float>(2 * ((word >> (k / 2 % 4 * 3)) & 7u) + 1);
    const uint32_t high = (uint32_t{b.qh[k / 2]} >> (k % 2 * 4)) & 15u;
    const float delta = (high & 8u) != 0 ? -kIq1Delta : kIq1Delta;
    WriteShifted(kIq1SGrid[b.qs[k] | ((high & 7u) << 8)], delta, scale, y + k * 8);
  }
}

void DecodeBlockIQ4_NL(const BlockIQ4_NL& b, float* y) {
  const float d = b.d.value();
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kIq4Levels[b.qs[i] & 15]);
    y[i + 16] = d * static_cast<float>(kIq4Levels[b.qs[i] >> 4]);
  }
}

// Parts of 32 like IQ4_NL, with 6-bit scales minus 32: 4 bits in scales_l, 2 in scales_h.
void DecodeBlockIQ4_XS(const BlockIQ4_XS& b, float* y) {
  const float d = b.d.value();
  const uint32_t high = LoadU16(b.scales_h);
  for (int part = 0; part < 8; ++part) {
    const int low4 = (b.scales_l[part / 2] >> (part % 2 * 4)) & 15;
    const int high2 = static_cast<int>((high >> (2 * part)) & 3u);
    const float scale = d * static_cast<float>((low4 | (high2 << 4)) - 32);
    const uint8_t* qs = b.qs + part * 16;
    for (int i = 0; i < 16; ++i) {
      y[part * 32 + i] = scale * static_cast<float>(kIq4Levels[qs[i] & 15]);
      y[part * 32 + i + 16] = scale * static_cast<float>(kIq4Levels[qs[i] >> 4]);
    }
  }
}

}  // namespace

void DecodeIQ2_XXS(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ2_XXS, kSuperBlock, DecodeBlockIQ2_XXS>(src, dst, n);
}
void DecodeIQ2_XS(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ2_XS, kSuperBlock, DecodeBlockIQ2_XS>(src, dst, n);
}
void DecodeIQ2_S(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ2_S, kSuperBlock, DecodeBlockIQ2_S>(src, dst, n);
}
void DecodeIQ3_XXS(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ3_XXS, kSuperBlock, DecodeBlockIQ3_XXS>(src, dst, n);
}
void DecodeIQ3_S(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ3_S, kSuperBlock, DecodeBlockIQ3_S>(src, dst, n);
}
void DecodeIQ1_S(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ1_S, kSuperBlock, DecodeBlockIQ1_S>(src, dst, n);
}
void DecodeIQ1_M(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ1_M, kSuperBlock, DecodeBlockIQ1_M>(src, dst, n);
}
void DecodeIQ4_NL(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ4_NL, 32, DecodeBlockIQ4_NL>(src, dst, n);
}
void DecodeIQ4_XS(const std::byte* src, float* dst, int64_t n) {
  DecodeBlocks<BlockIQ4_XS, kSuperBlock, DecodeBlockIQ4_XS>(src, dst, n);
}

}  // namespace lucid::codecs
