// The kernels for the base instruction set of the build.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#define LUCID_ISA generic

// The algorithms of the last includes are written over the vectors of the first two: the blank
// lines keep their order.
#include "kernels/cpu/vec_generic.h"

#include "kernels/cpu/dot_generic.h"

#include "kernels/cpu/dense_linear-inl.h"
#include "kernels/cpu/experts_dense-inl.h"
#include "kernels/cpu/experts_packed-inl.h"
#include "kernels/cpu/packed_linear-inl.h"
#include "kernels/cpu/table-inl.h"
#include "kernels/cpu/tables.h"

namespace lucid {
namespace generic {
namespace {
constexpr Kernel kKernels[] = {
    LUCID_PACKED_KERNELS("generic"), LUCID_EXPERT_KERNELS(PackedExperts, "packed_", "generic"),
    LUCID_DENSE_KERNELS("generic"), LUCID_EXPERT_KERNELS(DenseExperts, "dense_", "generic"),
    LUCID_CPU_KERNELS("generic")};
constexpr KernelTable kTable = {"generic", kKernels};
}  // namespace
}  // namespace generic

const KernelTable& GenericKernels() {
  return generic::kTable;
}

}  // namespace lucid
