// Decoders: how the weights of each block type become float vectors, in registers.
//
// A decoder D has kBlock (values in a block), kBytes (bytes of it) and D::Block(p, sink), which
// calls sink(offset, vector) for every kLanes values in ascending order. Layouts: tensor/blocks.h.
// Products of a scale and a quant are exact in float32, so the values have the codec's bits on
// every instruction set.
#pragma once

#include <cstdint>
#include <cstring>

namespace lucid::LUCID_ISA {
namespace {

constexpr int kVectorsOf16 = 16 / kLanes;

// Hands on the vectors of 16 + 16 values that lie `stride` apart.
template <typename Sink>
[[gnu::always_inline]] inline void Emit16(const F* v, int offset, Sink&& sink) {
#pragma GCC unroll 4
  for (int i = 0; i < kVectorsOf16; ++i) sink(offset + i * kLanes, v[i]);
}

struct Q4_0 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 18;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    const F d = SetHalf(p);
    const F m = d * Set(-8.0f);
    const Nibbles n = AffineNibbles(p + 2, d, m, d, m);
    Emit16(n.low, 0, sink);
    Emit16(n.high, 16, sink);
  }
};

struct Q4_1 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 20;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    F d;
    F m;
    SetTwoHalves(p, &d, &m);
    const Nibbles n = AffineNibbles(p + 4, d, m, d, m);
    Emit16(n.low, 0, sink);
    Emit16(n.high, 16, sink);
  }
};

struct Q5_0 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 22;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    uint32_t qh;
    memcpy(&qh, p + 2, sizeof(qh));
    const F d = SetHalf(p);
    const F m = d * Set(-16.0f);
    const Nibbles n = AffineFives(p + 6, qh & 0xffffu, qh >> 16, d, m, d, m);
    Emit16(n.low, 0, sink);
    Emit16(n.high, 16, sink);
  }
};

struct Q5_1 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 24;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    uint32_t qh;
    memcpy(&qh, p + 4, sizeof(qh));
    F d;
    F m;
    SetTwoHalves(p, &d, &m);
    const Nibbles n = AffineFives(p + 8, qh & 0xffffu, qh >> 16, d, m, d, m);
    Emit16(n.low, 0, sink);
    Emit16(n.high, 16, sink);
  }
};

struct Q8_0 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 34;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    const F d = SetHalf(p);
#pragma GCC unroll 8
    for (int i = 0; i < kBlock; i += kLanes) sink(i, d * LoadI8(p + 2 + i));
  }
};

// The eight 6-bit scales and minimums of Q4_K and Q5_K, each as 8 bytes.
struct KScales {
  uint8_t scale[8];
  uint8_t min[8];
};
inline KScales UnpackKScales(const uint8_t* p) {
  uint32_t u[3];
  memcpy(u, p, sizeof(u));
  const uint32_t scale[2] = {u[0] & 0x3f3f3f3fu,
                             (u[2] & 0x0f0f0f0fu) | (((u[0] >> 6) & 0x03030303u) << 4)};
  const uint32_t min[2] = {u[1] & 0x3f3f3f3fu,
                           ((u[2] >> 4) & 0x0f0f0f0fu) | (((u[1] >> 6) & 0x03030303u) << 4)};
  KScales out;
  memcpy(out.scale, scale, sizeof(scale));
  memcpy(out.min, min, sizeof(min));
  return out;
}

struct Q4_K {
  static constexpr int kBlock = 256;
  static constexpr int kBytes = 144;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    const float d = HalfToFloat(p);
    const float dmin = -HalfToFloat(p + 2);
    const KScales s = UnpackKScales(p + 4);
    for (int j = 0; j < 4; ++j) {
      const F d_low = Set(d * s.scale[2 * j]);
      const F m_low = Set(dmin * s.min[2 * j]);
      const F d_high = Set(d * s.scale[2 * j + 1]);
      const F m_high = Set(dmin * s.min[2 * j + 1]);
      const uint8_t* qs = p + 16 + 32 * j;
      const Nibbles a = AffineNibbles(qs, d_low, m_low, d_high, m_high);
      const Nibbles b = AffineNibbles(qs + 16, d_low, m_low, d_high, m_high);
      Emit16(a.low, 64 * j, sink);
      Emit16(b.low, 64 * j + 16, sink);
      Emit16(a.high, 64 * j + 32, sink);
      Emit16(b.high, 64 * j + 48, sink);
    }
  }
};

struct Q5_K {
  static constexpr int kBlock = 256;
  static constexpr int kBytes = 176;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    const float d = HalfToFloat(p);
    const float dmin = -HalfToFloat(p + 2);
    const KScales s = UnpackKScales(p + 4);
    const uint8_t* qh = p + 16;
    for (int j = 0; j < 4; ++j) {
      const F d_low = Set(d * s.scale[2 * j]);
      const F m_low = Set(dmin * s.min[2 * j]);
      const F d_high = Set(d * s.scale[2 * j + 1]);
      const F m_high = Set(dmin * s.min[2 * j + 1]);
      const uint8_t* qs = p + 48 + 32 * j;
      const Nibbles a = AffineFives(qs, BitOfBytes16(qh, 2 * j), BitOfBytes16(qh, 2 * j + 1), d_low,
                                    m_low, d_high, m_high);
      const Nibbles b = AffineFives(qs + 16, BitOfBytes16(qh + 16, 2 * j),
                                    BitOfBytes16(qh + 16, 2 * j + 1), d_low, m_low, d_high, m_high);
      Emit16(a.low, 64 * j, sink);
      Emit16(b.low, 64 * j + 16, sink);
      Emit16(a.high, 64 * j + 32, sink);
      Emit16(b.high, 64 * j + 48, sink);
    }
  }
};

struct Q6_K {
  static constexpr int kBlock = 256;
  static constexpr int kBytes = 210;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    const float d = HalfToFloat(p + 208);
    int8_t scales[16];
    memcpy(scales, p + 192, sizeof(scales));
    for (int n = 0; n < 2; ++n) {
      const uint8_t* ql = p + 64 * n;
      const uint8_t* qh = p + 128 + 32 * n;
      uint8_t q[128];  // two's complement of q - 32
      for (int l = 0; l < 32; ++l) {
        q[l] = static_cast<uint8_t>(((ql[l] & 0x0f) | ((qh[l] & 3) << 4)) - 32);
        q[32 + l] = static_cast<uint8_t>(((ql[l + 32] & 0x0f) | (((qh[l] >> 2) & 3) << 4)) - 32);
        q[64 + l] = static_cast<uint8_t>(((ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4)) - 32);
        q[96 + l] = static_cast<uint8_t>(((ql[l + 32] >> 4) | ((qh[l] >> 6) << 4)) - 32);
      }
      for (int sub = 0; sub < 8; ++sub) {
        const F ds = Set(d * static_cast<float>(scales[8 * n + sub]));
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += kLanes) {
          sink(128 * n + 16 * sub + i, ds * LoadI8(q + 16 * sub + i));
        }
      }
    }
  }
};

// Plain types: a "block" is one vector; rows may end in a part of one.
struct F32 {
  static constexpr int kBlock = kLanes;
  static constexpr int kBytes = 4 * kLanes;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    F v;
    memcpy(&v, p, sizeof(v));
    sink(0, v);
  }
};
struct F16 {
  static constexpr int kBlock = kLanes;
  static constexpr int kBytes = 2 * kLanes;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    sink(0, LoadF16(p));
  }
};
struct Bf16 {
  static constexpr int kBlock = kLanes;
  static constexpr int kBytes = 2 * kLanes;
  template <typename Sink>
  [[gnu::always_inline]] static inline void Block(const uint8_t* p, Sink&& sink) {
    sink(0, LoadBf16(p));
  }
};

// One row of k values into dst, whose length is k rounded up to kLanes; the rest is set to zero.
template <typename D>
void DecodeRow(const uint8_t* row, float* dst, int64_t k) {
  int64_t i = 0;
  for (; i + D::kBlock <= k; i += D::kBlock, row += D::kBytes) {
    D::Block(
        row,
        [ dst, i ](int offset, F w) __attribute__((always_inline)) { Store(dst + i + offset, w); });
  }
  if constexpr (D::kBlock == kLanes) {
    if (i < k) {
      uint8_t last[D::kBytes] = {};
      memcpy(last, row, static_cast<size_t>((k - i) * (D::kBytes / kLanes)));
      D::Block(
          last, [ dst, i ](int, F w) __attribute__((always_inline)) { Store(dst + i, w); });
    }
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
