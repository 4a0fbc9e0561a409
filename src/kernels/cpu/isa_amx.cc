// The kernels for AMX: linears of packed weights, whose prompts multiply tiles of bfloat16 pairs.
// Replies go to the kernels of AVX-512 with VNNI; all else is next in the stack of tables.
//
// This file is compiled with flags of its own (cmake/isa.cmake). Every function in it but the
// getter is in an anonymous namespace, and it uses no templates of the standard library: the linker
// must never pick a copy from here for code that runs on any CPU (ADR 0003;
// scripts/check_isa_symbols.sh checks it).
#if defined(__x86_64__)
#define LUCID_ISA amx

// The algorithms of the last includes are written over the types of the first three: the blank
// lines keep their order.
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/dot_avx512vnni.h"

#include "kernels/cpu/tile_amx.h"

#include "kernels/cpu/tables.h"
#include "kernels/cpu/tile_linear-inl.h"

namespace lucid {
namespace amx {
namespace {
constexpr Kernel kKernels[] = {LUCID_TILE_KERNELS("amx", AmxTiles, Avx512VnniKernels)};
constexpr KernelTable kTable = {"amx", kKernels};
}  // namespace
}  // namespace amx

const KernelTable& AmxKernels() {
  return amx::kTable;
}

}  // namespace lucid

#endif  // x86-64
