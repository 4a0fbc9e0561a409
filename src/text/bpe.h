// Byte-pair encoding with a list of merges: byte-level (GPT-2 and after) or by characters with byte
// fallback. Sennrich et al. 2016; the order of merges is that of the `tokenizers` library.
#pragma once

#include <array>
#include <memory>

#include "base/result.h"
#include "text/merge_queue.h"
#include "text/word_model.h"

namespace lucid {

class BpeModel final : public WordModel {
 public:
  // kInvalidFile if a merge names pieces that are not in the vocabulary.
  static Result<std::unique_ptr<BpeModel>> Create(const ModelVocab& vocab);

  void Encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  struct Entry {
    uint64_t pair = kFree;  // left << 32 | right
    uint32_t rank = kNoMerge;
    TokenId id = -1;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  explicit BpeModel(const ModelVocab& vocab) : vocab_(vocab) {}
  Status AddMerges();
  // The entry of left + tail, or -1; `guess` is tried before the table.
  TokenId FindJoined(std::string_view left, std::string_view tail, TokenId guess) const;
  static uint64_t HashOf(uint64_t pair) {
    const uint64_t hash = pair * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32;
  }
  size_t Slot(uint64_t pair) const;
  TokenId FindWhole(std::string_view word) const;
  void BytesToSymbols(std::string_view word, std::vector<MergeSymbol>& symbols) const;
  void CharactersToSymbols(std::string_view word, std::vector<MergeSymbol>& symbols) const;

  const ModelVocab& vocab_;
  std::vector<Entry> merges_;  // open addressing
  size_t mask_ = 0;
  std::array<TokenId, 256> byte_ids_;  // byte-level: the entry of each single byte
};

}  // namespace lucid
