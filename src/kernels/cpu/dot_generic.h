// Strip vectors of the base instruction set. The dot_*.h files offer the same functions, and the
// kernels of packed weights are written once over them:
//   kRowTile      activation rows of a register tile
//   kStripTile    strips of a panel's register tile
//   kDirectRows   up to so many rows, weights are unpacked in registers
//   kSignedDot    whether there is DotOfSigned for weights that are signed bytes; else they get 128
//   added
//   (Flip)
// Bytes are 16 rows x 4 columns, row by row; Ints and Floats have a number for each row.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/strip-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kRowTile = 2;
constexpr int kStripTile = 1;
constexpr int kDirectRows = 4;
constexpr bool kSignedDot = true;

struct Bytes {
  uint8_t v[64];
};
struct Ints {
  int32_t v[16];
};

inline Bytes LoadBytes(const uint8_t* p) {
  Bytes b;
  memcpy(b.v, p, sizeof(b.v));
  return b;
}
inline void StoreBytes(uint8_t* p, const Bytes& b) {
  memcpy(p, b.v, sizeof(b.v));
}
// Every byte times 2^kShift (kShift < 0: divided). What crosses into a neighbour is garbage: mask
// it.
template <int kShift>
inline Bytes ShiftBits(const Bytes& b) {
  Bytes out;
  for (int i = 0; i < 64; ++i) {
    if constexpr (kShift >= 0) out.v[i] = static_cast<uint8_t>(b.v[i] << kShift);
    if constexpr (kShift < 0) out.v[i] = static_cast<uint8_t>(b.v[i] >> -kShift);
  }
  return out;
}
inline Bytes And(const Bytes& b, uint8_t mask) {
  Bytes out;
  for (int i = 0; i < 64; ++i) out.v[i] = b.v[i] & mask;
  return out;
}
inline Bytes Or(const Bytes& a, const Bytes& b) {
  Bytes out;
  for (int i = 0; i < 64; ++i) out.v[i] = a.v[i] | b.v[i];
  return out;
}
// The signed byte table[index] of 16.
inline Bytes Lookup(const int8_t* table, const Bytes& index) {
  Bytes out;
  for (int i = 0; i < 64; ++i) out.v[i] = static_cast<uint8_t>(table[index.v[i] & 15]);
  return out;
}

inline Ints ZeroInts() {
  return Ints{};
}
// sum + w . x for each row, of unsigned weights below 64 (any unsigned byte where kSignedDot is
// false), and of signed ones.
inline Ints Dot(const Ints& sum, const Bytes& w, Four x) {
  int8_t four[4];
  memcpy(four, &x, sizeof(four));
  Ints out;
  for (int r = 0; r < 16; ++r) {
    out.v[r] = sum.v[r];
    for (int j = 0; j < 4; ++j) out.v[r] += w.v[4 * r + j] * four[j];
  }
  return out;
}
inline Ints DotOfSigned(const Ints& sum, const Bytes& w, Four x) {
  int8_t four[4];
  memcpy(four, &x, sizeof(four));
  Ints out;
  for (int r = 0; r < 16; ++r) {
    out.v[r] = sum.v[r];
    for (int j = 0; j < 4; ++j) out.v[r] += static_cast<int8_t>(w.v[4 * r + j]) * four[j];
  }
  return out;
}
inline Ints TimesHighUnit(const Ints& a) {
  Ints out;
  for (int r = 0; r < 16; ++r) out.v[r] = a.v[r] * (1 << kLowBits);
  return out;
}
inline Ints Add(const Ints& a, const Ints& b) {
  Ints out;
  for (int r = 0; r < 16; ++r) out.v[r] = a.v[r] + b.v[r];
  return out;
}
inline Ints Subtract(const Ints& a, int32_t b) {
  Ints out;
  for (int r = 0; r < 16; ++r) out.v[r] = a.v[r] - b;
  return out;
}
inline Floats ToFloats(const Ints& a) {
  float out[16];
  for (int r = 0; r < 16; ++r) out[r] = static_cast<float>(a.v[r]);
  return LoadFloats(out);
}

}  // namespace
}  // namespace lucid::LUCID_ISA
