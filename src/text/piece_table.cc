#include "text/piece_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lucid {
namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

// Multiply-fold over 8-byte words (the mixing step of wyhash): short keys need one or two
// multiplications.
uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kA = 0xA0761D6478BD642FULL, kB = 0xE7037ED1A0B428DBULL;
  const auto mix = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t hash = kA ^ bytes.size();
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = mix(hash ^ word, kB);
  }
  uint64_t tail = 0;
  if (at < bytes.size()) std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  return mix(hash ^ tail, kB ^ hash);
}

PieceTable::PieceTable(std::span<const std::string> pieces, std::span<const uint8_t> skip)
    : pieces_(pieces) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, pieces.size() * 2));
  slots_.resize(slots);
  mask_ = slots - 1;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!skip.empty() && skip[id] != 0) continue;
    max_length_ = std::max(max_length_, pieces[id].size());
    const uint64_t hash = HashBytes(pieces[id]);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & mask_;
    bool known = false;
    while (slots_[at].id >= 0 && !known) {
      known = slots_[at].tag == tag && pieces[static_cast<size_t>(slots_[at].id)] == pieces[id];
      at = (at + 1) & mask_;
    }
    if (!known) slots_[at] = {static_cast<TokenId>(id), tag};
  }
}

TokenId PieceTable::Find(std::string_view piece) const {
  if (slots_.empty() || piece.size() > max_length_) return -1;
  const uint64_t hash = HashBytes(piece);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_) {
    if (slots_[at].tag == tag && pieces_[static_cast<size_t>(slots_[at].id)] == piece)
      return slots_[at].id;
  }
  return -1;
}

}  // namespace lucid
