// Charsmap: the precompiled normalisation table of a SentencePiece model (`precompiled_charsmap`).
//
// Layout: u32 size of a double-array trie in bytes, the trie (u32 units, darts-clone), then the
// replacement texts, each ended by a NUL. Little-endian. The blob is untrusted: every index is
// checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lucid {

class Charsmap {
 public:
  // kInvalidFile if the sizes do not fit.
  static Result<Charsmap> Parse(std::string_view blob);

  // Short grapheme clusters are looked up whole, then characters one by one, as `tokenizers` does.
  std::string Apply(std::string_view text) const;

 private:
  // The replacement of the shortest prefix of `text` that the table holds.
  std::optional<std::string_view> Find(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace lucid
