// The types of packed weights as strip vectors: how the numbers of a block come out of its planes,
// and the scales of a tile out of their bits. The layout: kernels/packed.h.
//
// A type T has
//   kSubBlocks      scales of a block of 32 columns: 1 or 2
//   kAdds           whether value = scale * q + add, else scale * q
//   kOffset         subtracted from the unsigned number of the planes to get q
//   kSigned         the planes hold q itself, as signed bytes (kOffset = 0)
//   kWords          plane words of a row's block
//   kLargest        largest magnitude that the planes can hold
//   T::Group<g>(p)  columns 4g to 4g + 3 of the block whose planes are at p
//   T::Scales(p, blocks, scale, add)   [blocks * kSubBlocks][16] floats from the scales at p
// A product of a scale and a small integer is exact in float32.
#pragma once

#include <cstdint>

#include "kernels/cpu/strip-inl.h"
#include "tensor/blocks.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kPlaneBytes = 64;  // a plane word of 16 rows

// --- planes ---

template <int kGroup>
inline Bytes NibbleGroup(const uint8_t* p) {
  return And(ShiftBits<(kGroup < 4 ? 0 : -4)>(LoadBytes(p + kGroup % 4 * kPlaneBytes)), 15);
}
// Bit kGroup of each byte, moved to bit kTo.
template <int kGroup, int kTo>
inline Bytes BitGroup(const uint8_t* p) {
  return And(ShiftBits<kTo - kGroup>(LoadBytes(p)), 1 << kTo);
}
// Two bits of each byte of two words, moved to bit kTo.
template <int kGroup, int kTo>
inline Bytes CrumbGroup(const uint8_t* p) {
  return And(ShiftBits<kTo - kGroup % 4 * 2>(LoadBytes(p + kGroup / 4 * kPlaneBytes)), 3 << kTo);
}

struct NibblePlanes {
  static constexpr int kWords = 4;
  static constexpr int kLargest = 15;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return NibbleGroup<kGroup>(p);
  }
};
struct NibbleBitPlanes {
  static constexpr int kWords = 5;
  static constexpr int kLargest = 31;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return Or(NibbleGroup<kGroup>(p), BitGroup<kGroup, 4>(p + 4 * kPlaneBytes));
  }
};
struct NibbleCrumbPlanes {
  static constexpr int kWords = 6;
  static constexpr int kLargest = 63;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return Or(NibbleGroup<kGroup>(p), CrumbGroup<kGroup, 4>(p + 4 * kPlaneBytes));
  }
};
struct CrumbPlanes {
  static constexpr int kWords = 2;
  static constexpr int kLargest = 3;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return CrumbGroup<kGroup, 0>(p);
  }
};
struct CrumbBitPlanes {
  static constexpr int kWords = 3;
  static constexpr int kLargest = 7;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return Or(CrumbGroup<kGroup, 0>(p), BitGroup<kGroup, 2>(p + 2 * kPlaneBytes));
  }
};
struct BytePlanes {
  static constexpr int kWords = 8;
  static constexpr int kLargest = 128;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return LoadBytes(p + kGroup * kPlaneBytes);
  }
};
// Copies of the tables of tensor/blocks.h: an inline variable used here would be a symbol that this
// object shares with all others.
struct LevelTable {
  int8_t v[16];
};
constexpr LevelTable CopyOf(const int8_t (&table)[16]) {
  LevelTable copy = {};
  for (int i = 0; i < 16; ++i) copy.v[i] = table[i];
  return copy;
}
constexpr LevelTable kIq4Table = CopyOf(kIq4Levels);
constexpr LevelTable kE2m1Table = CopyOf(kE2m1Doubled);

struct Iq4Planes {
  static constexpr int kWords = 4;
  static constexpr int kLargest = 127;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return Lookup(kIq4Table.v, NibbleGroup<kGroup>(p));
  }
};
struct E2m1Planes {
  static constexpr int kWords = 4;
  static constexpr int kLargest = 12;
  template <int kGroup>
  static inline Bytes Group(const uint8_t* p) {
    return Lookup(kE2m1Table.v, NibbleGroup<kGroup>(p));
  }
};

// --- scales ---

// 16 halves at p as floats.
inline Floats LoadHalves(const uint8_t* p) {
  Floats out;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVectors; ++i) out.v[i] = LoadF16(p + 2 * i * kLanes);
  return out;
}
inline Floats LoadUnsigned(const uint8_t* p) {
  Floats out;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVectors; ++i) out.v[i] = LoadU8(p + i * kLanes);
  return out;
}
inline Floats LoadSigned(const uint8_t* p) {
  Floats out;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVectors; ++i) out.v[i] = LoadI8(p + i * kLanes);
  return out;
}
inline Floats Negative(const Floats& a) {
  return Multiply(a, SetFloats(-1.0f));
}

struct HalfScales {
  static constexpr int kSubBlocks = 1;
  static constexpr bool kAdds = false;
  static inline void Scales(const uint8_t* p, int64_t blocks, float* scale, float*) {
    for (int64_t b = 0; b < blocks; ++b) StoreFloats(scale + 16 * b, LoadHalves(p + 32 * b));
  }
};

struct TwoHalvesScales {
  static constexpr int kSubBlocks = 1;
  static constexpr bool kAdds = true;
  static inline void Scales(const uint8_t* p, int64_t blocks, float* scale, float* add) {
    HalfScales::Scales(p, blocks, scale, nullptr);
    HalfScales::Scales(p + 32 * blocks, blocks, add, nullptr);
  }
};

// Eight scales and eight mins of 6 bits, put together byte by byte first.
struct KQuantScales {
  static constexpr int kSubBlocks = 1;
  static constexpr bool kAdds = true;
  static inline void Scales(const uint8_t* p, int64_t, float* scale, float* add) {
    const Bytes high = LoadBytes(p + 192);
    const Bytes low_scale = LoadBytes(p + 64);
    const Bytes low_min = LoadBytes(p + 128);
    uint8_t six[4][64];  // scales 0-3, 4-7, mins 0-3, 4-7
    StoreBytes(six[0], Or(And(low_scale, 15), And(ShiftBits<4>(high), 0x30)));
    StoreBytes(six[1], Or(And(ShiftBits<-4>(low_scale), 15), And(ShiftBits<2>(high), 0x30)));
    StoreBytes(six[2], Or(And(low_min, 15), And(high, 0x30)));
    StoreBytes(six[3], Or(And(ShiftBits<-4>(low_min), 15), And(ShiftBits<-2>(high), 0x30)));
    const Floats d = LoadHalves(p);
    const Floats dmin = Negative(LoadHalves(p + 32));
    for (int s = 0; s < 8; ++s) {
      StoreFloats(scale + 16 * s, Multiply(d, LoadUnsigned(six[s / 4] + s % 4 * 16)));
      StoreFloats(add + 16 * s, Multiply(dmin, LoadUnsigned(six[2 + s / 4] + s % 4 * 16)));
    }
  }
};

struct Q6Scales {
  static constexpr int kSubBlocks = 2;
  static constexpr bool kAdds = false;
  static inline void Scales(const uint8_t* p, int64_t, float* scale, float*) {
    const Floats d = LoadHalves(p);
    for (int s = 0; s < 16; ++s) {
      StoreFloats(scale + 16 * s, Multiply(d, LoadSigned(p + 32 + 16 * s)));
    }
  }
};

struct Q2Scales {
  static constexpr int kSubBlocks = 2;
  static constexpr bool kAdds = true;
  static inline void Scales(const uint8_t* p, int64_t, float* scale, float* add) {
    const Floats d = LoadHalves(p);
    const Floats dmin = Negative(LoadHalves(p + 32));
    for (int q = 0; q < 4; ++q) {  // four sub-blocks at a time
      const Bytes both = LoadBytes(p + 64 + 64 * q);
      uint8_t low[64];
      uint8_t high[64];
      StoreBytes(low, And(both, 15));
      StoreBytes(high, And(ShiftBits<-4>(both), 15));
      for (int s = 0; s < 4; ++s) {
        StoreFloats(scale + 16 * (4 * q + s), Multiply(d, LoadUnsigned(low + 16 * s)));
        StoreFloats(add + 16 * (4 * q + s), Multiply(dmin, LoadUnsigned(high + 16 * s)));
      }
    }
  }
};

// 6-bit scales, of which 32 is subtracted: sub-block s of `kCount`, the file's bits at `low` and
// `high`.
template <int kCount>
inline void SixBitScales(const Floats& d, const uint8_t* low, const uint8_t* high, float* scale) {
  for (int s = 0; s < kCount; ++s) {
    uint8_t six[16];
    const uint8_t* l = low + s % (kCount / 2) * 16;
    const uint8_t* h = high + s % (kCount / 4) * 16;
    const int low_shift = s / (kCount / 2) * 4;
    const int high_shift = s / (kCount / 4) * 2;
    for (int r = 0; r < 16; ++r) {
      six[r] = static_cast<uint8_t>(
          (((l[r] >> low_shift) & 15) | (((h[r] >> high_shift) & 3) << 4)) - 32);
    }
    StoreFloats(scale + 16 * s, Multiply(d, LoadSigned(six)));
  }
}
struct Q3Scales {
  static constexpr int kSubBlocks = 2;
  static constexpr bool kAdds = false;
  static inline void Scales(const uint8_t* p, int64_t, float* scale, float*) {
    SixBitScales<16>(LoadHalves(p), p + 32, p + 160, scale);
  }
};
struct Iq4XsScales {
  static constexpr int kSubBlocks = 1;
  static constexpr bool kAdds = false;
  static inline void Scales(const uint8_t* p, int64_t, float* scale, float*) {
    SixBitScales<8>(LoadHalves(p), p + 32, p + 96, scale);
  }
};

struct ExponentScales {
  static constexpr int kSubBlocks = 1;
  static constexpr bool kAdds = false;
  static inline void Scales(const uint8_t* p, int64_t blocks, float* scale, float*) {
    for (int64_t i = 0; i < 16 * blocks; ++i) {
      const uint32_t e = p[i];  // 2^(e - 128), as E8m0Half of tensor/blocks.h
      const uint32_t bits = e < 2 ? uint32_t{0x00200000} << e : (e - 1) << 23;
      memcpy(scale + i, &bits, sizeof(bits));
    }
  }
};

// --- types ---

template <typename PlanesT, typename ScalesT, int kOffsetT, bool kSignedT = false>
struct PackedTypeOf : PlanesT, ScalesT {
  static constexpr int kOffset = kOffsetT;
  static constexpr bool kSigned = kSignedT;
};
using PackedQ4_0 = PackedTypeOf<NibblePlanes, HalfScales, 8>;
using PackedQ4_1 = PackedTypeOf<NibblePlanes, TwoHalvesScales, 0>;
using PackedQ5_0 = PackedTypeOf<NibbleBitPlanes, HalfScales, 16>;
using PackedQ5_1 = PackedTypeOf<NibbleBitPlanes, TwoHalvesScales, 0>;
using PackedQ8_0 = PackedTypeOf<BytePlanes, HalfScales, 0, true>;
using PackedQ2_K = PackedTypeOf<CrumbPlanes, Q2Scales, 0>;
using PackedQ3_K = PackedTypeOf<CrumbBitPlanes, Q3Scales, 4>;
using PackedQ4_K = PackedTypeOf<NibblePlanes, KQuantScales, 0>;
using PackedQ5_K = PackedTypeOf<NibbleBitPlanes, KQuantScales, 0>;
using PackedQ6_K = PackedTypeOf<NibbleCrumbPlanes, Q6Scales, 32>;
using PackedIQ4_NL = PackedTypeOf<Iq4Planes, HalfScales, 0, true>;
using PackedIQ4_XS = PackedTypeOf<Iq4Planes, Iq4XsScales, 0, true>;
using PackedMXFP4 = PackedTypeOf<E2m1Planes, ExponentScales, 0, true>;

}  // namespace
}  // namespace lucid::LUCID_ISA
