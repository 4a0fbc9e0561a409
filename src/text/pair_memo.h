// PairMemo: remembers for pairs of ids the id they belong to, in a table of fixed size that any
// number of threads read and write without a lock.
//
// An entry is one 64-bit word, so it is always whole; a pair that falls on another's place takes
// it. Used by spm.h, where an id decides a piece's text and so the answer never changes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "text/vocab_spec.h"

namespace lucid {

class PairMemo {
 public:
  // For ids below `n_ids`; with more than kMaxIds nothing is remembered.
  explicit PairMemo(size_t n_ids) : entries_(n_ids <= kMaxIds ? kSlots : 0) {}

  // What was put for the pair (-1 is an answer too); nothing if it is not remembered.
  std::optional<TokenId> Get(TokenId left, TokenId right) const {
    if (entries_.empty()) return std::nullopt;
    const uint64_t entry = entries_[Slot(left, right)].load(std::memory_order_relaxed);
    if (entry >> kIdBits != Key(left, right)) return std::nullopt;
    return static_cast<TokenId>(entry & kMask) - 1;
  }

  void Put(TokenId left, TokenId right, TokenId id) {
    if (entries_.empty()) return;
    entries_[Slot(left, right)].store(Key(left, right) << kIdBits | static_cast<uint64_t>(id + 1),
                                      std::memory_order_relaxed);
  }

 private:
  static constexpr int kIdBits = 21;
  static constexpr uint64_t kMask = (uint64_t{1} << kIdBits) - 1;
  static constexpr size_t kMaxIds = kMask;
  static constexpr int kSlotBits = 16;  // half a megabyte
  static constexpr size_t kSlots = size_t{1} << kSlotBits;

  // Never 0, the key of a free entry.
  static uint64_t Key(TokenId left, TokenId right) {
    return (static_cast<uint64_t>(left) + 1) << kIdBits | static_cast<uint64_t>(right);
  }
  static size_t Slot(TokenId left, TokenId right) {
    return static_cast<size_t>(Key(left, right) * 0x9E3779B97F4A7C15ULL >> (64 - kSlotBits));
  }

  std::vector<std::atomic<uint64_t>> entries_;
};

}  // namespace lucid
