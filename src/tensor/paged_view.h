// KvView: where the keys and values of one layer lie, as plain data for kernels.
//
// Storage is cut into blocks of `block_size` token positions. A sequence's block table maps its
// logical block number to a physical one, so position p of a sequence is found in block table[p /
// block_size], place p % block_size. Kernels use only this view and never assume that blocks follow
// each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace lucid {

struct KvView {
  std::byte* k = nullptr;       // [n_blocks][n_heads][block_size][k_dim]
  std::byte* v = nullptr;       // [n_blocks][n_heads][block_size][v_dim]
  DType k_dtype = DType::kF16;  // kF32, kF16 or kBF16
  DType v_dtype = DType::kF16;
  int32_t n_heads = 0;  // KV heads
  int32_t k_dim = 0;    // elements of a key
  int32_t v_dim = 0;
  int32_t block_size = 0;  // positions in a block
};

}  // namespace lucid
