// The kernel tables of each instruction set: the only symbol that cpu/isa_<name>.cc exports.
#pragma once

#include "kernels/table.h"

namespace lucid {

const KernelTable& GenericKernels();  // the base instruction set of the build
#if defined(__x86_64__)
const KernelTable& Avx2Kernels();        // needs kNeedsAvx2 (base/cpu_features.h)
const KernelTable& Avx512Kernels();      // kNeedsAvx512
const KernelTable& Avx512VnniKernels();  // kNeedsAvx512Vnni
const KernelTable& Avx512Bf16Kernels();  // kNeedsAvx512Bf16
const KernelTable& AmxKernels();         // kNeedsAmx
#elif defined(__aarch64__)
const KernelTable& NeonKernels();     // kNeedsNeon
const KernelTable& NeonDotKernels();  // kNeedsNeonDot
#endif

}  // namespace lucid
