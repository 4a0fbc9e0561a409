// KvStorage: the memory of the cache of all layers, cut into blocks, and the views that kernels get
// of it.
//
// It knows nothing of sequences: who owns which block is the business of kv_manager.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "plan/op.h"
#include "tensor/paged_view.h"

namespace lucid {

struct KvStorageOptions {
  int64_t n_blocks = 0;
  int64_t block_size = 32;      // positions in a block
  DType k_dtype = DType::kF16;  // kF32, kF16 or kBF16
  DType v_dtype = DType::kF16;
};

class KvStorage {
 public:
  // Reserves the address space for all blocks of all layers; pages take memory when first written.
  // kInvalidArgument for a dtype that a cache cannot have.
  static Result<KvStorage> Create(std::span<const KvSpec> layers, const KvStorageOptions& options);

  KvView Layer(size_t layer) const { return views_[layer]; }
  const KvStorageOptions& options() const { return options_; }
  int64_t bytes_per_block() const { return bytes_per_block_; }  // over all layers, keys and values

 private:
  KvStorageOptions options_;
  int64_t bytes_per_block_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<KvView> views_;
};

}  // namespace lucid
