// Floats: 16 floats, one for each row of a strip of packed weights, as vectors of the instruction
// set. Used by the dot_*.h files and all that builds on them.
#pragma once

#include <cstdint>
#include <cstring>

namespace lucid::LUCID_ISA {
namespace {

// An activation is high * 2^kLowBits + low in units of its block's scale (planes-inl.h).
constexpr int kLowBits = 7;

constexpr int kStripVectors = 16 / kLanes;
struct Floats {
  F v[kStripVectors];
};

#define LUCID_EACH_VECTOR(expression)                               \
  Floats out;                                                       \
  _Pragma("GCC unroll 4") for (int i = 0; i < kStripVectors; ++i) { \
    out.v[i] = expression;                                          \
  }                                                                 \
  return out

inline Floats LoadFloats(const float* p) {
  LUCID_EACH_VECTOR(Load(p + i * kLanes));
}
inline Floats ZeroFloats() {
  LUCID_EACH_VECTOR(Zero());
}
inline Floats SetFloats(float x) {
  LUCID_EACH_VECTOR(Set(x));
}
inline Floats Multiply(const Floats& a, const Floats& b) {
  LUCID_EACH_VECTOR(a.v[i] * b.v[i]);
}
inline Floats FmaFloats(const Floats& a, const Floats& b, const Floats& c) {
  LUCID_EACH_VECTOR(Fma(a.v[i], b.v[i], c.v[i]));
}
inline void StoreFloats(float* p, const Floats& a) {
#pragma GCC unroll 4
  for (int i = 0; i < kStripVectors; ++i) Store(p + i * kLanes, a.v[i]);
}
#undef LUCID_EACH_VECTOR

// Four consecutive activations of one plane.
using Four = int32_t;
inline Four LoadFour(const int8_t* x) {
  Four four;
  memcpy(&four, x, sizeof(four));
  return four;
}

}  // namespace
}  // namespace lucid::LUCID_ISA
