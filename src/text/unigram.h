// SentencePiece unigram: the segmentation with the highest sum of scores (Viterbi). Kudo 2018; ties
// and the score of unknown characters as in the `tokenizers` library.
#pragma once

#include "text/trie.h"
#include "text/word_model.h"

namespace lucid {

class UnigramModel final : public WordModel {
 public:
  explicit UnigramModel(const ModelVocab& vocab);

  void Encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  void AppendUnknown(std::string_view text, std::vector<TokenId>& out) const;

  const ModelVocab& vocab_;
  Trie trie_;
  double unknown_score_ = 0;
};

}  // namespace lucid
