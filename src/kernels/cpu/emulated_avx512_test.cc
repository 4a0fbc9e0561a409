// Avx512TileKernels (emulated_tables.h): compiled with the flags of isa_avx512bf16.cc.
#if defined(__x86_64__)
#define LUCID_ISA avx512_tiles

// The algorithms of the last includes are written over the types of the first three: the blank
// lines keep their order.
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/dot_avx512vnni.h"

#include "kernels/cpu/tile_emulated.h"

#include "kernels/cpu/emulated_tables.h"
#include "kernels/cpu/tables.h"
#include "kernels/cpu/tile_linear-inl.h"

namespace lucid {
namespace avx512_tiles {
namespace {
constexpr Kernel kKernels[] = {LUCID_TILE_KERNELS("avx512", EmulatedTiles, Avx512VnniKernels)};
constexpr KernelTable kTable = {"emulated over avx512", kKernels};
}  // namespace
}  // namespace avx512_tiles

const KernelTable& Avx512TileKernels() {
  return avx512_tiles::kTable;
}

}  // namespace lucid

#endif  // x86-64
