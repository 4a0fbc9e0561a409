// Probes of NEON: fused multiply-adds, and the byte products of its kernels (dot_neon.h).
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__aarch64__)
#define LUCID_PROBE probe_neon

#include <arm_neon.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_neon {
namespace {

struct Float {
  using Vec = float32x4_t;
  static constexpr int kA = 4, kB = 4, kLanes = 4;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) { return vfmaq_f32(sum, a, b); }
};
struct Integer {
  using Vec = int8x16_t;
  static constexpr int kA = 4, kB = 3, kLanes = 16;
  static Vec MultiplyAdd(Vec sum, Vec a, Vec b) {
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    const int16x8_t pairs = vpaddq_s16(low, vmull_high_s8(a, b));
    return vreinterpretq_s8_s32(vpadalq_s16(vreinterpretq_s32_s8(sum), pairs));
  }
};

constexpr Probe kProbes[] = {
    {ProbeKind::kFloat, "", Work<Float>(), MultiplyAdd<Float>},
    {ProbeKind::kInteger, "", Work<Integer>(), MultiplyAdd<Integer>},
};
constexpr ProbeTable kTable = {"neon", kProbes};

}  // namespace
}  // namespace probe_neon

const ProbeTable& NeonProbes() {
  return probe_neon::kTable;
}

}  // namespace lucid

#endif  // aarch64
