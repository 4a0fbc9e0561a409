// Probe of the 8-bit dot products of NEON.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__aarch64__)
#define LUCID_PROBE probe_neondot

#include <arm_neon.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_neondot {
namespace {

struct Integer {
  using Vec = int8x16_t;
  static constexpr int kA = 4, kB = 4, kLanes = 16;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) {
    return vreinterpretq_s8_s32(vdotq_s32(vreinterpretq_s32_s8(sum), a, b));
  }
};

constexpr Probe kProbes[] = {
    {ProbeKind::kInteger, "", Work<Integer>(), MultiplyAdd<Integer>},
};
constexpr ProbeTable kTable = {"neondot", kProbes};

}  // namespace
}  // namespace probe_neondot

const ProbeTable& NeonDotProbes() {
  return probe_neondot::kTable;
}

}  // namespace lucid

#endif  // aarch64
