// SentencePiece BPE: any two neighbours whose text is a piece may be merged, best score first; what
// is no piece falls back to bytes. Kudo and Richardson 2018.
#pragma once

#include "text/merge_queue.h"
#include "text/pair_memo.h"
#include "text/word_model.h"

namespace lucid {

class SpmModel final : public WordModel {
 public:
  explicit SpmModel(const ModelVocab& vocab);

  void Encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  // The ordinary entry that two neighbours spell together, or -1.
  TokenId Joined(std::string_view word, const MergeSymbol& left, const MergeSymbol& right) const;

  const ModelVocab& vocab_;
  std::vector<uint32_t> rank_;  // by id: 0 for the best score, equal for equal scores
  mutable PairMemo memo_;       // what pairs of pieces spell together
};

}  // namespace lucid
