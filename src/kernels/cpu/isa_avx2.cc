// The kernels for AVX2 with FMA, F16C, BMI1 and BMI2.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__x86_64__)
#define LUCID_ISA avx2

// The algorithms of the last includes are written over the vectors of the first two: the blank
// lines keep their order.
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/dot_avx2.h"

#include "kernels/cpu/dense_linear-inl.h"
#include "kernels/cpu/experts_dense-inl.h"
#include "kernels/cpu/experts_packed-inl.h"
#include "kernels/cpu/packed_linear-inl.h"
#include "kernels/cpu/table-inl.h"
#include "kernels/cpu/tables.h"

namespace lucid {
namespace avx2 {
namespace {
constexpr Kernel kKernels[] = {
    LUCID_PACKED_KERNELS("avx2"), LUCID_EXPERT_KERNELS(PackedExperts, "packed_", "avx2"),
    LUCID_DENSE_KERNELS("avx2"), LUCID_EXPERT_KERNELS(DenseExperts, "dense_", "avx2"),
    LUCID_CPU_KERNELS("avx2")};
constexpr KernelTable kTable = {"avx2", kKernels};
}  // namespace
}  // namespace avx2

const KernelTable& Avx2Kernels() {
  return avx2::kTable;
}

}  // namespace lucid

#endif  // x86-64
