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

// In the compiler's portable vectors, which it cuts to those of the base instruction set.
struct Bytes {
  uint8_t __attribute__((vector_size(64))) v;
};
struct Ints {
  int32_t __attribute__((vector_size(64))) v;
};
using Pairs16 = int16_t __attribute__((vector_size(64)));

inline Bytes LoadBytes(const uint8_t* p) {
  Bytes b;
  memcpy(&b.v, p, sizeof(b.v));
  return b;
}
inline void StoreBytes(uint8_t* p, const Bytes& b) {
  memcpy(p, &b.v, sizeof(b.v));
}
// Every byte times 2^kShift (kShift < 0: divided). What crosses into a neighbour is garbage: mask
// it.
template <int kShift>
inline Bytes ShiftBits(const Bytes& b) {
  using Words = uint16_t __attribute__((vector_size(64)));
  const auto words = reinterpret_cast<Words>(b.v);
  if constexpr (kShift >= 0) return {reinterpret_cast<decltype(Bytes::v)>(words << kShift)};
  if constexpr (kShift < 0) return {reinterpret_cast<decltype(Bytes::v)>(words >> -kShift)};
}
inline Bytes And(const Bytes& b, uint8_t mask) {
  return {b.v & mask};
}
inline Bytes Or(const Bytes& a, const Bytes& b) {
  return {a.v | b.v};
}
// The signed byte table[index] of 16.
inline Bytes Lookup(const int8_t* table, const Bytes& index) {
  uint8_t at[64];
  uint8_t found[64];
  memcpy(at, &index.v, sizeof(at));
  for (int i = 0; i < 64; ++i) found[i] = static_cast<uint8_t>(table[at[i] & 15]);
  return LoadBytes(found);
}

inline Ints ZeroInts() {
  return {decltype(Ints::v){}};
}
// x * 2^bits for each row.
inline Ints ShiftedInt(int32_t x, int bits) {
  return {decltype(Ints::v){} + (x << bits)};
}
// even . x0 and x2, odd . x1 and x3: the bytes of a row as numbers of 16 bits, whose products with
// a signed byte fit in 16 bits.
inline Ints DotOfHalves(const Ints& sum, const Pairs16& even, const Pairs16& odd, Four x) {
  int8_t four[4];
  memcpy(four, &x, sizeof(four));
  Pairs16 x_even;
  Pairs16 x_odd;
  for (int i = 0; i < 32; ++i) {
    x_even[i] = four[i % 2 * 2];
    x_odd[i] = four[i % 2 * 2 + 1];
  }
  using Words32 = decltype(Ints::v);
  const auto p = reinterpret_cast<Words32>(even * x_even);
  const auto q = reinterpret_cast<Words32>(odd * x_odd);
  return {sum.v + ((p << 16) >> 16) + (p >> 16) + ((q << 16) >> 16) + (q >> 16)};
}
// Products of groups of columns are added up in runs: a run goes on from sums of integers, or has
// sums of its own in fewer bits. RunGroups: how many groups of weights of up to `largest` in
// magnitude and of signed bytes of up to 127 it may have.
using RunSums = Ints;
constexpr int RunGroups(int) {
  return 8;
}
inline RunSums BeginRun(const Ints& before) {
  return before;
}
inline Ints EndRun(const Ints&, const RunSums& run) {
  return run;
}
// sum + w . x for each row, of unsigned weights below 64 (any unsigned byte where kSignedDot is
// false), and of signed ones.
inline Ints Dot(const Ints& sum, const Bytes& w, Four x) {
  using Words = uint16_t __attribute__((vector_size(64)));
  const auto words = reinterpret_cast<Words>(w.v);
  return DotOfHalves(sum, reinterpret_cast<Pairs16>(words & 255),
                     reinterpret_cast<Pairs16>(words >> 8), x);
}
inline Ints DotOfSigned(const Ints& sum, const Bytes& w, Four x) {
  const auto words = reinterpret_cast<Pairs16>(w.v);
  return DotOfHalves(sum, (words << 8) >> 8, words >> 8, x);
}
inline Ints TimesHighUnit(const Ints& a) {
  return {a.v * (1 << kLowBits)};
}
inline Ints Add(const Ints& a, const Ints& b) {
  return {a.v + b.v};
}
inline Floats ToFloats(const Ints& a) {
  using Floats16 = float __attribute__((vector_size(64)));
  const Floats16 floats = __builtin_convertvector(a.v, Floats16);
  return LoadFloats(reinterpret_cast<const float*>(&floats));
}

}  // namespace
}  // namespace lucid::LUCID_ISA
