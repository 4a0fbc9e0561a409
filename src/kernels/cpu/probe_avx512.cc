// Probes of AVX-512 F.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__x86_64__)
#define LUCID_PROBE probe_avx512

#include <immintrin.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_avx512 {
namespace {

struct Float {
  using Vec = __m512;
  static constexpr int kA = 4, kB = 3, kLanes = 16;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) { return _mm512_fmadd_ps(a, b, sum); }
};

constexpr Probe kProbes[] = {
    LUCID_READ_PROBES(__m512i),
    {ProbeKind::kFloat, "", Work<Float>(), MultiplyAdd<Float>},
};

constexpr ProbeTable kTable = {"avx512", kProbes};

}  // namespace
}  // namespace probe_avx512

const ProbeTable& Avx512Probes() {
  return probe_avx512::kTable;
}

}  // namespace lucid

#endif  // x86-64
