// The row kernels for AVX-512 F, BW, DQ and VL. Compiled with flags of its own, under the rules of
// isa_avx512.cc (ADR 0003).
#if defined(__x86_64__)
#define LUCID_ISA avx512

#include "kernels/cpu/vec_avx512.h"

namespace lucid::avx512 {
namespace {

constexpr int kDoubles = 8;
using D = __m512d;

inline D Widen(const float* p) {
  return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}
inline D Spread(double x) {
  return _mm512_set1_pd(x);
}
inline D ToFloat(D a) {
  return _mm512_cvtps_pd(_mm512_cvtpd_ps(a));
}
inline D Max(D a, D b) {
  return _mm512_max_pd(a, b);
}
inline D Fma(D a, D b, D c) {
  return _mm512_fmadd_pd(a, b, c);
}
inline D Nearest(D a) {
  return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT);
}
inline D Scaled(D p, D n) {
  return _mm512_scalef_pd(p, n);
}
inline uint32_t NotLess(F a, F b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

}  // namespace
}  // namespace lucid::avx512

#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/rows.h"

namespace lucid {
namespace avx512 {
namespace {
constexpr RowKernels kRowKernels = {"avx512", Maxima, AtLeast, Weights};
}  // namespace
}  // namespace avx512

const RowKernels& Avx512RowKernels() {
  return avx512::kRowKernels;
}

}  // namespace lucid

#endif  // x86-64
