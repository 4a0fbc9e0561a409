#include "kv/block_pool.h"

#include <limits>

#include "base/check.h"

namespace lucid {

BlockPool::BlockPool(int64_t n_blocks) {
  LUCID_CHECK(n_blocks >= 0 && n_blocks <= std::numeric_limits<int32_t>::max());
  blocks_.resize(static_cast<size_t>(n_blocks));
  free_.reserve(blocks_.size());
  for (int64_t b = n_blocks - 1; b >= 0; --b) free_.push_back(static_cast<int32_t>(b));
}

int32_t BlockPool::Take() {
  int32_t block = -1;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = oldest_;
    if (block < 0) return -1;
    Unlink(block);
    At(block).remembered = false;
    ++evictions_;
    if (on_evict_) on_evict_(block);
  }
  At(block).holders = 1;
  ++held_;
  return block;
}

void BlockPool::Hold(int32_t block) {
  Block& b = At(block);
  LUCID_CHECK(b.holders > 0 || b.remembered, "block {} is free and cannot be held", block);
  if (b.holders == 0) {
    Unlink(block);
    ++held_;
  }
  ++b.holders;
}

void BlockPool::Release(int32_t block) {
  Block& b = At(block);
  LUCID_CHECK(b.holders > 0, "block {} is released by nobody who holds it", block);
  if (--b.holders > 0) return;
  --held_;
  if (b.remembered) {
    Append(block);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::Remember(int32_t block) {
  Block& b = At(block);
  LUCID_CHECK(b.holders > 0 && !b.remembered, "block {} cannot be remembered now", block);
  b.remembered = true;
}

void BlockPool::Forget(int32_t block) {
  Block& b = At(block);
  if (!b.remembered) return;
  b.remembered = false;
  if (b.holders > 0) return;
  Unlink(block);
  free_.push_back(block);
}

void BlockPool::Append(int32_t block) {
  Block& b = At(block);
  b.older = newest_;
  b.newer = -1;
  (newest_ < 0 ? oldest_ : At(newest_).newer) = block;
  newest_ = block;
  ++cached_;
}

void BlockPool::Unlink(int32_t block) {
  Block& b = At(block);
  (b.older < 0 ? oldest_ : At(b.older).newer) = b.newer;
  (b.newer < 0 ? newest_ : At(b.newer).older) = b.older;
  b.older = b.newer = -1;
  --cached_;
}

Status BlockPool::CheckInvariants() const {
  enum class State : int8_t { kUnseen, kFree, kCached };
  std::vector<State> states(blocks_.size(), State::kUnseen);
  for (const int32_t block : free_) {
    State& state = states[static_cast<size_t>(block)];
    if (state != State::kUnseen) {
      return Err(ErrorCode::kInvalidArgument, "block {} is free twice", block);
    }
    state = State::kFree;
  }
  int64_t n_cached = 0;
  for (int32_t block = oldest_, before = -1; block >= 0;
       before = block, block = blocks_[static_cast<size_t>(block)].newer) {
    State& state = states[static_cast<size_t>(block)];
    if (state != State::kUnseen || blocks_[static_cast<size_t>(block)].older != before) {
      return Err(ErrorCode::kInvalidArgument, "block {} is cached twice or free too", block);
    }
    state = State::kCached;
    ++n_cached;
  }
  int64_t n_held = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    const State expected = b.holders > 0  ? State::kUnseen
                           : b.remembered ? State::kCached
                                          : State::kFree;
    if (b.holders < 0 || states[i] != expected) {
      return Err(ErrorCode::kInvalidArgument,
                 "block {} has {} holders, is {}remembered and is listed as {}", i, b.holders,
                 b.remembered ? "" : "not ",
                 states[i] == State::kFree     ? "free"
                 : states[i] == State::kCached ? "cached"
                                               : "held");
    }
    if (b.holders > 0) ++n_held;
  }
  if (n_cached != cached_ || n_held != held_ || free() + cached() + held() != total()) {
    return Err(ErrorCode::kInvalidArgument,
               "{} free, {} cached and {} held blocks do not make {} blocks", free(), cached(),
               held(), total());
  }
  return {};
}

}  // namespace lucid
