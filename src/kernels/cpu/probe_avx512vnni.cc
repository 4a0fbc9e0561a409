// Probe of the 8-bit dot products of AVX-512 VNNI.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__x86_64__)
#define LUCID_PROBE probe_avx512vnni

#include <immintrin.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_avx512vnni {
namespace {

struct Integer {
  using Vec = __m512i;
  static constexpr int kA = 4, kB = 3, kLanes = 64;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) { return _mm512_dpbusd_epi32(sum, a, b); }
};

constexpr Probe kProbes[] = {
    {ProbeKind::kInteger, "", Work<Integer>(), MultiplyAdd<Integer>},
};

constexpr ProbeTable kTable = {"avx512vnni", kProbes};

}  // namespace
}  // namespace probe_avx512vnni

const ProbeTable& Avx512VnniProbes() {
  return probe_avx512vnni::kTable;
}

}  // namespace lucid

#endif  // x86-64
