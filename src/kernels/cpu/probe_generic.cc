// Probes of the base instruction set of the build: SSE2 on x86-64, NEON on aarch64. And the clock,
// for which no vectors are needed.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#define LUCID_PROBE probe_generic

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_generic {
namespace {

typedef uint64_t Words __attribute__((vector_size(16)));

struct Float {
  typedef float Vec __attribute__((vector_size(16)));
  static constexpr int kA = 3, kB = 3, kLanes = 4;
  // One instruction where the compiler may contract it and the base set has it.
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) { return sum + a * b; }
};

// Additions of two registers: one cycle each everywhere, and none that a core resolves while it
// renames registers, as some do with additions of constants.
constexpr int64_t kClockCycles = 64;
uint64_t CountCycles(const void*, int64_t n) {
  uint64_t sum = static_cast<uint64_t>(n);
  uint64_t step = sum | 1;
  asm volatile("" : "+r"(step));
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 64
    for (int j = 0; j < kClockCycles; ++j) {
      sum += step;
      asm volatile("" : "+r"(sum));
    }
  }
  return sum;
}

constexpr Probe kProbes[] = {
    LUCID_READ_PROBES(Words),
    {ProbeKind::kClock, "", kClockCycles, CountCycles},
    {ProbeKind::kFloat, "", Work<Float>(), MultiplyAdd<Float>},
};
constexpr ProbeTable kTable = {"generic", kProbes};

}  // namespace
}  // namespace probe_generic

const ProbeTable& GenericProbes() {
  return probe_generic::kTable;
}

}  // namespace lucid
