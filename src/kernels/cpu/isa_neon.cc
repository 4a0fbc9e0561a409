// The kernels for NEON, which every 64-bit Arm has. Beside the generic ones, which the compiler
// makes NEON of too, these have fused multiply-adds and byte products.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__aarch64__)
#define LUCID_ISA neon

// The algorithms of the last includes are written over the vectors of the first two: the blank
// lines keep their order.
#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/dot_neon.h"

#include "kernels/cpu/dense_linear-inl.h"
#include "kernels/cpu/experts_dense-inl.h"
#include "kernels/cpu/experts_packed-inl.h"
#include "kernels/cpu/packed_linear-inl.h"
#include "kernels/cpu/table-inl.h"
#include "kernels/cpu/tables.h"

namespace lucid {
namespace neon {
namespace {
constexpr Kernel kKernels[] = {
    LUCID_PACKED_KERNELS("neon"), LUCID_EXPERT_KERNELS(PackedExperts, "packed_", "neon"),
    LUCID_DENSE_KERNELS("neon"), LUCID_EXPERT_KERNELS(DenseExperts, "dense_", "neon"),
    LUCID_CPU_KERNELS("neon")};
constexpr KernelTable kTable = {"neon", kKernels};
}  // namespace
}  // namespace neon

const KernelTable& NeonKernels() {
  return neon::kTable;
}

}  // namespace lucid

#endif  // aarch64
