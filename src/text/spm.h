// SentencePiece BPE: any two neighbours whose text is a piece may be merged, best score first; what
// is no piece falls back to bytes. Kudo and Richardson 2018.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

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
  // The character at `at`, or the byte where none begins; its ordinary entry, or -1.
  struct Character {
    TokenId id;
    uint32_t length;
  };
  Character CharacterAt(std::string_view word, size_t at) const;

  const ModelVocab& vocab_;
  std::vector<uint32_t> rank_;  // by id: 0 for the best score, equal for equal scores
  mutable PairMemo memo_;       // what pairs of pieces spell together
  // Entries of the characters that most texts are made of: nearly every one would be a look-up.
  std::array<TokenId, 128> ascii_;
  TokenId metaspace_;
};

}  // namespace lucid
