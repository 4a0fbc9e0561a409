// MetaspaceCuts: where a text without a pre-tokenizer may be cut into words, so that each is
// encoded by itself and equal words only once, with the ids that the whole text would get.
//
// A cut lies before a run of "▁". It is allowed where no merge can join what stands on its two
// sides. Neighbours: tokenizer.cc asks for the cuts; bpe.h and spm.h encode the words.
#pragma once

#include <array>
#include <string_view>

#include "text/pretokenize.h"
#include "text/word_model.h"

namespace lucid {

class MetaspaceCuts {
 public:
  MetaspaceCuts() = default;  // allows none
  // Reads the merges of `vocab`'s spec, or its pieces where any piece is a merge. Allows no cut
  // where the vocabulary has no "▁", where a pre-tokenizer cuts already, and where a word's place
  // in the text changes its pieces.
  explicit MetaspaceCuts(const ModelVocab& vocab);

  bool any() const { return any_; }
  // Replaces the pieces by the words of the whole text.
  void Split(PreTokenized& text) const;

 private:
  // Marks the bytes before each "▁" inside `piece`.
  void GlueInside(std::string_view piece);

  bool any_ = false;
  std::array<bool, 256> glued_{};  // by byte: a "▁" after it may belong to the same piece
};

}  // namespace lucid
