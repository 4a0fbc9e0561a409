// PieceTable: from the spelling of a vocabulary entry to its id, without copying any spelling.
//
// A flat open-addressing table of ids over a list of strings that must outlive it. Building 262,000
// entries takes some milliseconds. Most look-ups while a vocabulary is loaded wait for memory;
// whoever has many to make hashes some pieces ahead, calls Prefetch and PrefetchPiece, and then
// Find. Neighbours: every model of this folder looks pieces up here.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab_spec.h"

namespace lucid {

// Multiply-fold over 8-byte words (the mixing step of wyhash): short keys need one or two
// multiplications.
inline uint64_t HashBytes(std::string_view bytes) {
  __extension__ using Wide = unsigned __int128;
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

class PieceTable {
 public:
  PieceTable() = default;
  // Of entries spelled alike the lowest id wins; entries for which `skip` is set are left out.
  explicit PieceTable(std::span<const std::string> pieces, std::span<const uint8_t> skip = {});

  TokenId Find(std::string_view piece) const {  // -1 where absent
    return piece.size() > max_length_ ? -1 : Find(piece, HashBytes(piece));
  }
  TokenId Find(std::string_view piece, uint64_t hash) const;  // hash = HashBytes(piece)
  size_t max_length() const { return max_length_; }           // of any entry, bytes
  bool has_twins() const { return has_twins_; }               // some entries are spelled alike

  // Asks for the memory that Find will read first, and, some time later, for what it reads then.
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }
  void PrefetchPiece(uint64_t hash) const {
    const TokenId id = slots_[hash & mask_].id;
    if (id >= 0) __builtin_prefetch(&pieces_[static_cast<size_t>(id)]);
  }

 private:
  struct Slot {
    TokenId id = -1;
    uint32_t tag = 0;  // upper half of the hash
  };
  void Insert(size_t id, uint64_t hash);

  std::span<const std::string> pieces_;
  std::vector<Slot> slots_ = std::vector<Slot>(1);
  size_t mask_ = 0;
  size_t max_length_ = 0;
  bool has_twins_ = false;
};

}  // namespace lucid
