// BlockPool: who holds which block of one pool. Numbers only; the bytes are KvStorage's.
//
// A block is in one of three states: held (by one sequence or several), cached (by none, but the
// prefix tree knows what is in it) or free. free + cached + held = total at all times. All
// operations take constant time and no memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"

namespace lucid {

class BlockPool {
 public:
  explicit BlockPool(int64_t n_blocks);

  // Called when Take() gives a cached block a new life: the tree must forget it. It may call
  // Forget() for further blocks, which then become free.
  void OnEvict(std::function<void(int32_t block)> forget) { on_evict_ = std::move(forget); }

  // A block with one holder: a free one, else the cached block that was released longest ago.
  // -1 if every block is held.
  int32_t Take();
  void Hold(int32_t block);      // one more holder
  void Release(int32_t block);   // one holder less; with none left the block is cached or free
  void Remember(int32_t block);  // the tree knows its content: cached once nobody holds it
  void Forget(int32_t block);    // the tree does not know it any more

  int64_t total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached() const { return cached_; }
  int64_t held() const { return held_; }
  int64_t available() const { return free() + cached(); }
  int64_t evictions() const { return evictions_; }
  int32_t holders(int32_t block) const { return blocks_[static_cast<size_t>(block)].holders; }
  bool remembered(int32_t block) const { return blocks_[static_cast<size_t>(block)].remembered; }

  // kInvalidArgument naming the first block whose state contradicts the counts (tests, idle
  // checks).
  Status CheckInvariants() const;

 private:
  struct Block {
    int32_t holders = 0;
    bool remembered = false;
    int32_t older = -1;  // neighbours in the list of cached blocks
    int32_t newer = -1;
  };
  Block& At(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  void Append(int32_t block);  // to the list of cached blocks, as the newest
  void Unlink(int32_t block);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;
  int32_t oldest_ = -1;  // cached blocks, by the time of their release
  int32_t newest_ = -1;
  int64_t cached_ = 0;
  int64_t held_ = 0;
  int64_t evictions_ = 0;
  std::function<void(int32_t)> on_evict_;
};

}  // namespace lucid
