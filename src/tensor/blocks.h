// The quantised blocks of GGUF files as plain structs, byte for byte as they lie in a file.
//
// All members are bytes, so a block may be read at any address (rows of odd-sized blocks are not
// aligned). What the bits mean is in codecs/<family>.cc; the layouts are facts of the format
// (ggml's gguf type list). A "super-block" holds 256 values and has its own scales for parts of 16
// or 32 of them.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float16.h"

namespace lucid {

inline constexpr int kSuperBlock = 256;

// An f16 stored little-endian at any address.
struct PackedF16 {
  uint8_t lo, hi;
  uint16_t bits() const { return static_cast<uint16_t>(lo | (hi << 8)); }
  float value() const { return F16ToF32(bits()); }
  void Set(float value) {
    const uint16_t half = F32ToF16(value);
    lo = static_cast<uint8_t>(half & 0xff);
    hi = static_cast<uint8_t>(half >> 8);
  }
};

inline uint16_t LoadU16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | (p[1] << 8));
}
inline uint32_t LoadU32(const uint8_t* p) {
  return uint32_t{p[0]} | (uint32_t{p[1]} << 8) | (uint32_t{p[2]} << 16) | (uint32_t{p[3]} << 24);
}

// Legacy: 32 values. Byte i of a nibble array holds value i in its low half and value i + 16 in its
// high half.
struct BlockQ4_0 {
  PackedF16 d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  PackedF16 d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  PackedF16 d;
  uint8_t qh[4];  // bit i is bit 4 of value i
  uint8_t qs[16];
};
struct BlockQ5_1 {
  PackedF16 d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  PackedF16 d;
  int8_t qs[32];
};
struct BlockQ8_1 {  // of activations; never in files
  PackedF16 d;
  PackedF16 s;  // d * sum of qs
  int8_t qs[32];
};

// K-quants: super-blocks.
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  PackedF16 d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  PackedF16 d;
};
struct BlockQ4_K {
  PackedF16 d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  PackedF16 d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  PackedF16 d;
};
struct BlockQ8_K {  // of activations
  uint8_t d[4];     // float32
  int8_t qs[256];
  uint8_t bsums[32];  // int16 sums of 16 values
};

// I-quants: indices into the grids of codecs/iq_grids.h, and signs.
struct BlockIQ2_XXS {
  PackedF16 d;
  uint8_t qs[64];
};
struct BlockIQ2_XS {
  PackedF16 d;
  uint8_t qs[64];
  uint8_t scales[8];
};
struct BlockIQ2_S {
  PackedF16 d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};
struct BlockIQ3_XXS {
  PackedF16 d;
  uint8_t qs[64];
  uint8_t scales_signs[32];
};
struct BlockIQ3_S {
  PackedF16 d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
struct BlockIQ1_S {
  PackedF16 d;
  uint8_t qs[32];
  uint8_t qh[16];
};
struct BlockIQ1_M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8];
};
struct BlockIQ4_NL {  // 32 values
  PackedF16 d;
  uint8_t qs[16];
};
struct BlockIQ4_XS {
  PackedF16 d;
  uint8_t scales_h[2];
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// Ternary: super-blocks of -1, 0, 1.
struct BlockTQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  PackedF16 d;
};
struct BlockTQ2_0 {
  uint8_t qs[64];
  PackedF16 d;
};

// 4-bit floats (e2m1): 32 values with an e8m0 scale; 4 parts of 16 values with an e4m3 scale each.
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};
struct BlockNVFP4 {
  uint8_t d[4];
  uint8_t qs[32];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ8_1) == 36);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockQ8_K) == 292);
static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);
static_assert(sizeof(BlockMXFP4) == 17 && sizeof(BlockNVFP4) == 36);

// The 16 levels of IQ4_NL and IQ4_XS, and twice the 16 values of an e2m1 float.
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// Half of the power of two that an e8m0 byte stands for: 2^(e - 128); the other half is in
// kE2m1Doubled.
inline float E8m0Half(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (uint32_t{e} - 1u) << 23);
}
// Half of the unsigned e4m3 scale of NVFP4. The NaN pattern 0x7f reads as zero and bit 7 is
// ignored.
inline float UE4m3Half(uint8_t bits) {
  const uint32_t exponent = (bits >> 3) & 15u;
  const uint32_t mantissa = bits & 7u;
  if (bits == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>(((exponent + 127 - 8) << 23) | (mantissa << 20));
}

// Scale and minimum of part `j` (0 to 7) of a Q4_K or Q5_K super-block: 6 bits each, in 12 bytes.
// Parts 0-3 lie in the low 6 bits of bytes j and j + 4. Parts 4-7 have their low 4 bits in the
// halves of byte j + 4 and their high 2 bits in the top of bytes j - 4 and j.
struct ScaleMin {
  uint8_t scale, min;
};
inline ScaleMin KScaleMin(const uint8_t* scales, int j) {
  if (j < 4) {
    return {static_cast<uint8_t>(scales[j] & 63), static_cast<uint8_t>(scales[j + 4] & 63)};
  }
  return {static_cast<uint8_t>((scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4)),
          static_cast<uint8_t>((scales[j + 4] >> 4) | ((scales[j] >> 6) << 4))};
}

}  // namespace lucid
