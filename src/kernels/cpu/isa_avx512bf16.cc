// The kernels for AVX-512 with VNNI and BF16, which multiply pairs of bfloat16 numbers: attention,
// for prompts, and matrices of bfloat16; all others are the ones next in the stack of tables.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__x86_64__)
#define LUCID_ISA avx512bf16

// The algorithms of the second include are written over the vectors of the first: the blank line
// keeps their order.
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/dense_linear-inl.h"
#include "kernels/cpu/experts_dense-inl.h"
#include "kernels/cpu/tables.h"
#include "kernels/table.h"

namespace lucid {
namespace avx512bf16 {
namespace {
constexpr Kernel kKernels[] = {LUCID_DENSE_KERNELS("avx512bf16"),
                               LUCID_EXPERT_KERNELS(DenseExperts, "dense_", "avx512bf16"),
                               {KernelOp::kAttention, "attention.avx512bf16", Attention,
                                AttentionScratch, nullptr, AttentionShared}};
constexpr KernelTable kTable = {"avx512bf16", kKernels};
}  // namespace
}  // namespace avx512bf16

const KernelTable& Avx512Bf16Kernels() {
  return avx512bf16::kTable;
}

}  // namespace lucid

#endif  // x86-64
