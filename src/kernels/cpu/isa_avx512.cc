// The kernels for AVX-512 F, BW, DQ and VL.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__x86_64__)
#define LUCID_ISA avx512

// The algorithms of the second include are written over the vectors of the first: the blank line
// keeps their order.
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/dense_linear-inl.h"
#include "kernels/cpu/experts_dense-inl.h"
#include "kernels/cpu/table-inl.h"
#include "kernels/cpu/tables.h"

namespace lucid {
namespace avx512 {
namespace {
constexpr Kernel kKernels[] = {LUCID_DENSE_KERNELS("avx512"),
                               LUCID_EXPERT_KERNELS(DenseExperts, "dense_", "avx512"),
                               LUCID_CPU_KERNELS("avx512")};
constexpr KernelTable kTable = {"avx512", kKernels};
}  // namespace
}  // namespace avx512

const KernelTable& Avx512Kernels() {
  return avx512::kTable;
}

}  // namespace lucid

#endif  // x86-64
