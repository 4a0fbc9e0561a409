// SwapSpace: host memory for the blocks of sequences that had to make room. Slots by pool, each as
// large as the pool's blocks; all memory is set aside at start.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "kv/kv_layout.h"

namespace lucid {

class SwapSpace {
 public:
  // kCapacity naming the bytes if the machine refuses.
  static Result<SwapSpace> Create(const KvLayout& layout, const PoolCounts& n_slots);

  int32_t Take(size_t pool);  // -1 if the pool's slots are all taken
  void Give(size_t pool, int32_t slot) { pools_[pool].free.push_back(slot); }
  std::byte* Data(size_t pool, int32_t slot) const {
    return pools_[pool].memory.data() + slot * pools_[pool].slot_bytes;
  }
  int64_t total(size_t pool) const { return pools_[pool].total; }
  int64_t free(size_t pool) const { return static_cast<int64_t>(pools_[pool].free.size()); }
  int64_t used(size_t pool) const { return total(pool) - free(pool); }

 private:
  struct Pool {
    Buffer memory;
    int64_t slot_bytes = 0;
    int64_t total = 0;
    std::vector<int32_t> free;
  };
  std::vector<Pool> pools_;
};

}  // namespace lucid
