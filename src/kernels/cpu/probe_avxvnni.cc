// Probe of the 8-bit dot products of 256 bits that came with AVX-VNNI.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__x86_64__)
#define LUCID_PROBE probe_avxvnni

#include <immintrin.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_avxvnni {
namespace {

struct Integer {
  using Vec = __m256i;
  static constexpr int kA = 3, kB = 3, kLanes = 32;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
};

constexpr Probe kProbes[] = {
    {ProbeKind::kInteger, "", Work<Integer>(), MultiplyAdd<Integer>},
};

constexpr ProbeTable kTable = {"avxvnni", kProbes};

}  // namespace
}  // namespace probe_avxvnni

const ProbeTable& AvxVnniProbes() {
  return probe_avxvnni::kTable;
}

}  // namespace lucid

#endif  // x86-64
