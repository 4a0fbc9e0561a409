// GenericTileKernels (emulated_tables.h): compiled with the flags of isa_generic.cc.
#define LUCID_ISA generic_tiles

// The algorithms of the last includes are written over the types of the first three: the blank
// lines keep their order.
#include "kernels/cpu/vec_generic.h"

#include "kernels/cpu/dot_generic.h"

#include "kernels/cpu/tile_emulated.h"

#include "kernels/cpu/emulated_tables.h"
#include "kernels/cpu/tables.h"
#include "kernels/cpu/tile_linear-inl.h"

namespace lucid {
namespace generic_tiles {
namespace {
constexpr Kernel kKernels[] = {LUCID_TILE_KERNELS("generic", EmulatedTiles, GenericKernels)};
constexpr KernelTable kTable = {"emulated over generic", kKernels};
}  // namespace
}  // namespace generic_tiles

const KernelTable& GenericTileKernels() {
  return generic_tiles::kTable;
}

}  // namespace lucid
