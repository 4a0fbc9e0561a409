// The kernels for AVX-512 with VNNI: only those whose work is integer dot products; all others are
// the AVX-512 ones, next in the stack of tables.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__x86_64__)
#define LUCID_ISA avx512vnni

// The algorithms of the last include are written over the vectors of the first two: the blank lines
// keep their order.
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/dot_avx512vnni.h"

#include "kernels/cpu/experts_packed-inl.h"
#include "kernels/cpu/folded_linear-inl.h"
#include "kernels/cpu/packed_linear-inl.h"
#include "kernels/cpu/tables.h"

namespace lucid {
namespace avx512vnni {
namespace {
constexpr Kernel kReplyKernels[] = {LUCID_PACKED_KERNELS("avx512vnni")};
constexpr KernelTable kReplyTable = {"avx512vnni", kReplyKernels};
const KernelTable& Replies() {
  return kReplyTable;
}
constexpr Kernel kKernels[] = {LUCID_FOLDED_KERNELS("avx512vnni", Replies),
                               LUCID_PACKED_KERNELS("avx512vnni"),
                               LUCID_EXPERT_KERNELS(PackedExperts, "packed_", "avx512vnni")};
constexpr KernelTable kTable = {"avx512vnni", kKernels};
}  // namespace
}  // namespace avx512vnni

const KernelTable& Avx512VnniKernels() {
  return avx512vnni::kTable;
}

}  // namespace lucid

#endif  // x86-64
