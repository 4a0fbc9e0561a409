// Probe of the bfloat16 dot products of AVX-512.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__x86_64__)
#define LUCID_PROBE probe_avx512bf16

#include <immintrin.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_avx512bf16 {
namespace {

struct Bfloat {
  using Vec = __m512;
  static constexpr int kA = 4, kB = 3, kLanes = 32;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

constexpr Probe kProbes[] = {
    {ProbeKind::kBfloat, "", Work<Bfloat>(), MultiplyAdd<Bfloat>},
};

constexpr ProbeTable kTable = {"avx512bf16", kProbes};

}  // namespace
}  // namespace probe_avx512bf16

const ProbeTable& Avx512Bf16Probes() {
  return probe_avx512bf16::kTable;
}

}  // namespace lucid

#endif  // x86-64
