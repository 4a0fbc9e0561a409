// The probe tables: the only symbol that cpu/probe_<name>.cc exports.
#pragma once

#include "kernels/probe.h"

namespace lucid {

const ProbeTable& GenericProbes();  // the base instruction set of the build
#if defined(__x86_64__)
const ProbeTable& Avx2Probes();
const ProbeTable& Avx512Probes();
const ProbeTable& Avx512Bf16Probes();
const ProbeTable& AvxVnniProbes();
const ProbeTable& Avx512VnniProbes();
const ProbeTable& AmxProbes();
#elif defined(__aarch64__)
const ProbeTable& NeonProbes();
const ProbeTable& NeonDotProbes();
#endif

}  // namespace lucid
