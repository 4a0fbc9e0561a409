#include "kv/swap_space.h"

#include <utility>

#include "base/check.h"

namespace lucid {

Result<SwapSpace> SwapSpace::Create(const KvLayout& layout, const PoolCounts& n_slots) {
  SwapSpace space;
  for (size_t p = 0; p < layout.pools().size(); ++p) {
    LUCID_CHECK(n_slots[p] >= 0);
    Pool pool;
    pool.slot_bytes = layout.pools()[p].block_bytes;
    pool.total = n_slots[p];
    if (n_slots[p] > 0) {
      Result<Buffer> memory =
          Buffer::Allocate(static_cast<size_t>(n_slots[p]) * static_cast<size_t>(pool.slot_bytes));
      if (!memory) {
        return Err(ErrorCode::kCapacity,
                   "{} bytes of swap space for KV blocks do not fit the memory of this machine",
                   layout.Bytes(n_slots));
      }
      pool.memory = *std::move(memory);
    }
    for (int64_t s = n_slots[p] - 1; s >= 0; --s) pool.free.push_back(static_cast<int32_t>(s));
    space.pools_.push_back(std::move(pool));
  }
  return space;
}

int32_t SwapSpace::Take(size_t pool) {
  if (pools_[pool].free.empty()) return -1;
  const int32_t slot = pools_[pool].free.back();
  pools_[pool].free.pop_back();
  return slot;
}

}  // namespace lucid
