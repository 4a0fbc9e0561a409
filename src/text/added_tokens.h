// AddedTokens: finds the added tokens of a text (`<|im_end|>`), leftmost and longest first, with
// the strip and single-word rules of the `tokenizers` library.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/vocab_spec.h"

namespace lucid {

// A stretch of text, or the token that stands for it.
struct AddedSpan {
  TokenId id = -1;  // -1: text
  size_t begin = 0, end = 0;
};

class AddedTokens {
 public:
  // `normalized` chooses the tokens matched in the normalised text (their spelling is normalised
  // too) or the others.
  AddedTokens(const std::vector<AddedToken>& added, bool normalized, const Normalizer& normalizer);

  bool empty() const { return trie_.empty(); }
  // The whole of `text` in order; empty stretches are left out. No token is recognised that begins
  // at one of the ascending offsets `plain_starts`.
  std::vector<AddedSpan> Split(std::string_view text, AddedTokenMode mode,
                               std::span<const size_t> plain_starts = {}) const;

 private:
  // The longest token that begins at `at`: its index, and where it ends; -1 if none.
  int32_t LongestAt(std::string_view text, size_t at, size_t* end) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;
};

}  // namespace lucid
