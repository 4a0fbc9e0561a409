#include "text/piece_table.h"

#include <algorithm>
#include <array>
#include <bit>

namespace lucid {

PieceTable::PieceTable(std::span<const std::string> pieces, std::span<const uint8_t> skip)
    : pieces_(pieces) {
  const size_t n_slots = std::bit_ceil(std::max<size_t>(16, pieces.size() * 2));
  slots_.assign(n_slots, Slot());
  mask_ = n_slots - 1;
  // Entries are hashed this far ahead of their insertion, so that their slots are there by then.
  constexpr size_t kAhead = 32;
  std::array<uint64_t, kAhead> hashes{};
  for (size_t i = 0; i < pieces.size() + kAhead; ++i) {
    uint64_t& hash = hashes[i % kAhead];
    const size_t due = i - kAhead;
    if (i >= kAhead && (skip.empty() || skip[due] == 0)) Insert(due, hash);
    if (i < pieces.size()) {
      hash = HashBytes(pieces[i]);
      Prefetch(hash);
    }
  }
}

void PieceTable::Insert(size_t id, uint64_t hash) {
  max_length_ = std::max(max_length_, pieces_[id].size());
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & mask_;
  for (; slots_[at].id >= 0; at = (at + 1) & mask_) {
    if (slots_[at].tag != tag || pieces_[static_cast<size_t>(slots_[at].id)] != pieces_[id])
      continue;
    has_twins_ = true;
    return;
  }
  slots_[at] = {static_cast<TokenId>(id), tag};
}

TokenId PieceTable::Find(std::string_view piece, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_) {
    if (slots_[at].tag == tag && pieces_[static_cast<size_t>(slots_[at].id)] == piece)
      return slots_[at].id;
  }
  return -1;
}

}  // namespace lucid
