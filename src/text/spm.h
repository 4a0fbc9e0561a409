// SentencePiece BPE: any two neighbours whose text is a piece may be merged, best score first; what
// is no piece falls back to bytes. Kudo and Richardson 2018.
#pragma once

#include "text/word_model.h"

namespace lucid {

class SpmModel final : public WordModel {
 public:
  explicit SpmModel(const ModelVocab& vocab);

  void Encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  const ModelVocab& vocab_;
  std::vector<uint32_t> rank_;  // by id: 0 for the best score, equal for equal scores
};

}  // namespace lucid
