// The row kernels for the base instruction set of the build. Compiled with flags of its own, under
// the rules of isa_generic.cc (ADR 0003).
#define LUCID_ISA generic

#include "kernels/cpu/vec_generic.h"

namespace lucid::generic {
namespace {

constexpr int kDoubles = 2;
using D = double __attribute__((vector_size(16)));
using Bits = int64_t __attribute__((vector_size(16)));

inline D Widen(const float* p) {
  return D{p[0], p[1]};
}
inline D Spread(double x) {
  return D{x, x};
}
inline D ToFloat(D a) {
  using Half = float __attribute__((vector_size(8)));
  return __builtin_convertvector(__builtin_convertvector(a, Half), D);
}
inline D Max(D a, D b) {
  return a > b ? a : b;
}
inline D Fma(D a, D b, D c) {
  return a * b + c;
}
// By the last bits of 1.5 * 2^52 + a; |a| < 2^51.
inline D Nearest(D a) {
  return (a + Spread(0x1.8p52)) - Spread(0x1.8p52);
}
inline D Scaled(D p, D n) {
  const Bits bits = reinterpret_cast<Bits>(n + Spread(0x1.8p52));
  return reinterpret_cast<D>(reinterpret_cast<Bits>(p) + (bits << 52));
}
inline uint32_t NotLess(F a, F b) {
  const I bits = (a >= b) & I{1, 2, 4, 8};
  return static_cast<uint32_t>((bits[0] | bits[1]) | (bits[2] | bits[3]));
}

}  // namespace
}  // namespace lucid::generic

#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/rows.h"

namespace lucid {
namespace generic {
namespace {
constexpr RowKernels kRowKernels = {"generic", Maxima, AtLeast, Weights};
}  // namespace
}  // namespace generic

const RowKernels& GenericRowKernels() {
  return generic::kRowKernels;
}

}  // namespace lucid
