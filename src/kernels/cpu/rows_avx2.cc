// The row kernels for AVX2 with FMA. Compiled with flags of its own, under the rules of isa_avx2.cc
// (ADR 0003).
#if defined(__x86_64__)
#define LUCID_ISA avx2

#include "kernels/cpu/vec_avx2.h"

namespace lucid::avx2 {
namespace {

constexpr int kDoubles = 4;
using D = __m256d;

inline D Widen(const float* p) {
  return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
inline D Spread(double x) {
  return _mm256_set1_pd(x);
}
inline D ToFloat(D a) {
  return _mm256_cvtps_pd(_mm256_cvtpd_ps(a));
}
inline D Max(D a, D b) {
  return _mm256_max_pd(a, b);
}
inline D Fma(D a, D b, D c) {
  return _mm256_fmadd_pd(a, b, c);
}
inline D Nearest(D a) {
  return _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// n as an integer in the lowest bits, by the last bits of 1.5 * 2^52 + n; then added to the
// exponent.
inline D Scaled(D p, D n) {
  const __m256i bits = _mm256_castpd_si256(n + Spread(0x1.8p52));
  return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), _mm256_slli_epi64(bits, 52)));
}
inline uint32_t NotLess(F a, F b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}

}  // namespace
}  // namespace lucid::avx2

#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/rows.h"

namespace lucid {
namespace avx2 {
namespace {
constexpr RowKernels kRowKernels = {"avx2", Maxima, AtLeast, Weights};
}  // namespace
}  // namespace avx2

const RowKernels& Avx2RowKernels() {
  return avx2::kRowKernels;
}

}  // namespace lucid

#endif  // x86-64
