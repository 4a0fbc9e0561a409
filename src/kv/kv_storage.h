// KvStorage: the memory of the cache, cut into blocks, and the views that kernels get of it.
//
// It knows nothing of sequences: who owns which block is the business of kv_cache.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "kv/kv_layout.h"
#include "tensor/paged_view.h"

namespace lucid {

// What the bookkeeping needs of the memory behind it.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  // One whole block, all its pages.
  virtual void CopyBlock(int32_t pool, int32_t from, int32_t to) = 0;
  // `bytes` has room for the pool's block_bytes; slots follow each other.
  virtual void ReadBlock(int32_t pool, int32_t block, std::byte* bytes) const = 0;
  virtual void WriteBlock(int32_t pool, int32_t block, const std::byte* bytes) = 0;
};

class KvStorage final : public KvMemory {
 public:
  // Reserves the address space of all blocks of all pools; pages take memory when first written.
  // kCapacity naming the bytes if the machine refuses.
  static Result<KvStorage> Create(const KvLayout& layout, const PoolCounts& n_blocks);

  // Takes the memory of all blocks now. kCapacity if there is not enough.
  Status Populate();

  KvView Layer(size_t layer) const { return views_[layer]; }
  const KvLayout& layout() const { return layout_; }
  const PoolCounts& n_blocks() const { return n_blocks_; }
  int64_t bytes() const { return BytesOf(layout_, n_blocks_); }
  // What Create reserves: a pool without blocks still has one, which gives its layers an address.
  static int64_t BytesOf(const KvLayout& layout, const PoolCounts& n_blocks);

  void CopyBlock(int32_t pool, int32_t from, int32_t to) override;
  void ReadBlock(int32_t pool, int32_t block, std::byte* bytes) const override;
  void WriteBlock(int32_t pool, int32_t block, const std::byte* bytes) override;

 private:
  std::byte* SlotData(int32_t group, int32_t slot) const;

  KvLayout layout_;
  PoolCounts n_blocks_{};
  std::vector<std::vector<Buffer>> slots_;  // [pool][slot]: [n_blocks][page_bytes]
  std::vector<KvView> views_;               // by layer
};

}  // namespace lucid
