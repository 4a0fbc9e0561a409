// Kernels on tiles that the tests alone have: tile_linear-inl.h over tile_emulated.h, built for an
// instruction set that a machine without AMX has. Each is a table of its own, in no stack.
#pragma once

#include "kernels/table.h"

namespace lucid {

// Over the base instruction set of the build; replies run on GenericKernels.
const KernelTable& GenericTileKernels();
#if defined(__x86_64__)
// All of isa_amx.cc but the tile instructions; needs kNeedsAvx512Bf16.
const KernelTable& Avx512TileKernels();
#endif

}  // namespace lucid
