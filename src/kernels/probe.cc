#include "kernels/probe.h"

#include "base/cpu_features.h"
#include "kernels/cpu/probes.h"

namespace lucid {
namespace {

struct ProbeRow {
  const ProbeTable& (*get)();
  std::string_view needs;  // capabilities of the CPU, for WhyUnavailable
};

// Adding one: a row here, one in cmake/probes.cmake, and cpu/probe_<name>.cc.
constexpr ProbeRow kProbes[] = {
    {GenericProbes, ""},
#if defined(__x86_64__)
    {Avx2Probes, "avx2 fma"},
    {Avx512Probes, "avx512f"},
    {Avx512Bf16Probes, "avx512f avx512_bf16"},
    {AvxVnniProbes, "avx2 avx_vnni"},
    {Avx512VnniProbes, "avx512f avx512_vnni"},
    {AmxProbes, "amx_tile amx_int8 amx_bf16"},
#elif defined(__aarch64__)
    {NeonProbes, "asimd"},
    {NeonDotProbes, "asimd asimddp"},
#endif
};

}  // namespace

std::string_view Name(ProbeKind kind) {
  switch (kind) {
    case ProbeKind::kRead:
      return "read";
    case ProbeKind::kClock:
      return "clock";
    case ProbeKind::kFloat:
      return "float32";
    case ProbeKind::kBfloat:
      return "bfloat16";
    case ProbeKind::kInteger:
      return "int8";
  }
  return "unknown";
}

std::vector<ProbeStatus> ProbeStatuses() {
  std::vector<ProbeStatus> statuses;
  for (const ProbeRow& row : kProbes) statuses.push_back({&row.get(), WhyUnavailable(row.needs)});
  return statuses;
}

}  // namespace lucid
