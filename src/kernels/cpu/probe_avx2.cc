// Probes of AVX2 and FMA.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__x86_64__)
#define LUCID_PROBE probe_avx2

#include <immintrin.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_avx2 {
namespace {

struct Float {
  using Vec = __m256;
  static constexpr int kA = 3, kB = 3, kLanes = 8;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) { return _mm256_fmadd_ps(a, b, sum); }
};

constexpr Probe kProbes[] = {
    LUCID_READ_PROBES(__m256i),
    {ProbeKind::kFloat, "", Work<Float>(), MultiplyAdd<Float>},
};

constexpr ProbeTable kTable = {"avx2", kProbes};

}  // namespace
}  // namespace probe_avx2

const ProbeTable& Avx2Probes() {
  return probe_avx2::kTable;
}

}  // namespace lucid

#endif  // x86-64
