// The kernels for NEON with dot products (Armv8.2 "dotprod"): only those whose work is integer dot
// products; all others are the NEON ones, next in the stack of tables.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__aarch64__)
#define LUCID_ISA neondot

// The algorithms of the last include are written over the vectors of the first two: the blank lines
// keep their order.
#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/dot_neon.h"

#include "kernels/cpu/experts_packed-inl.h"
#include "kernels/cpu/packed_linear-inl.h"
#include "kernels/cpu/tables.h"

namespace lucid {
namespace neondot {
namespace {
constexpr Kernel kKernels[] = {LUCID_PACKED_KERNELS("neondot"),
                               LUCID_EXPERT_KERNELS(PackedExperts, "packed_", "neondot")};
constexpr KernelTable kTable = {"neondot", kKernels};
}  // namespace
}  // namespace neondot

const KernelTable& NeonDotKernels() {
  return neondot::kTable;
}

}  // namespace lucid

#endif  // aarch64
