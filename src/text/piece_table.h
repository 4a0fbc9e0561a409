// PieceTable: from the spelling of a vocabulary entry to its id, without copying any spelling.
//
// A flat open-addressing table of ids over a list of strings that must outlive it. Building 262,000
// entries takes some milliseconds. Neighbours: every model of this folder looks pieces up here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab_spec.h"

namespace lucid {

uint64_t HashBytes(std::string_view bytes);

class PieceTable {
 public:
  PieceTable() = default;
  // Of entries spelled alike the lowest id wins; entries for which `skip` is set are left out.
  explicit PieceTable(std::span<const std::string> pieces, std::span<const uint8_t> skip = {});

  TokenId Find(std::string_view piece) const;        // -1 where absent
  size_t max_length() const { return max_length_; }  // of any entry, bytes

 private:
  struct Slot {
    TokenId id = -1;
    uint32_t tag = 0;  // upper half of the hash
  };
  std::span<const std::string> pieces_;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t max_length_ = 0;
};

}  // namespace lucid
