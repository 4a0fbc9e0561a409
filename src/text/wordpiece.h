// WordPiece: the longest piece first, from the left; a word that cannot be covered is unknown.
// Devlin et al. 2018.
#pragma once

#include "text/word_model.h"

namespace lucid {

class WordPieceModel final : public WordModel {
 public:
  explicit WordPieceModel(const ModelVocab& vocab) : vocab_(vocab) {}

  void Encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  const ModelVocab& vocab_;
};

}  // namespace lucid
