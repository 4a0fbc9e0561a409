// The kernel tables of each instruction set: the only symbol that cpu/isa_<name>.cc exports.
#pragma once

#include "kernels/table.h"

namespace lucid {

const KernelTable& GenericKernels();  // the base instruction set of the build
#if defined(__x86_64__)
const KernelTable& Avx2Kernels();        // needs CpuFeatures::avx2
const KernelTable& Avx512Kernels();      // needs CpuFeatures::avx512
const KernelTable& Avx512VnniKernels();  // needs CpuFeatures::avx512_vnni
const KernelTable& Avx512Bf16Kernels();  // needs CpuFeatures::avx512_vnni and avx512_bf16
const KernelTable& AmxKernels();         // needs CpuFeatures::amx_bf16 and those of the line above
#elif defined(__aarch64__)
const KernelTable& NeonKernels();     // needs CpuFeatures::asimd
const KernelTable& NeonDotKernels();  // needs CpuFeatures::asimddp
#endif

}  // namespace lucid
