// WordModel: one pre-tokenized piece of text to ids. The four kinds are bpe.h, spm.h, unigram.h and
// wordpiece.h; tokenizer.h chooses by VocabSpec::model.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/piece_table.h"
#include "text/vocab_spec.h"

namespace lucid {

// What the models share about a vocabulary. Refers to a VocabSpec that must outlive it.
class ModelVocab {
 public:
  explicit ModelVocab(const VocabSpec& spec);

  const VocabSpec& spec() const { return spec_; }
  const PieceTable& table() const { return table_; }  // of all entries
  TokenId Find(std::string_view piece) const { return table_.Find(piece); }
  // An entry that ordinary text may become: neither a control token nor one only the added tokens
  // name.
  TokenId FindOrdinary(std::string_view piece) const;
  bool IsOrdinary(TokenId id) const { return ordinary_[static_cast<size_t>(id)] != 0; }
  // The `<0xXX>` entry of a byte, or -1; all 256 are there or none counts.
  TokenId ByteToken(unsigned char byte) const { return byte_tokens_[byte]; }
  bool has_byte_tokens() const { return has_byte_tokens_; }
  size_t max_length() const { return table_.max_length(); }
  bool has_twins() const { return table_.has_twins(); }

 private:
  const VocabSpec& spec_;
  PieceTable table_;
  std::vector<uint8_t> ordinary_;
  std::array<TokenId, 256> byte_tokens_;
  bool has_byte_tokens_ = false;
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of `word`, which may be any bytes.
  virtual void Encode(std::string_view word, std::vector<TokenId>& out) const = 0;
};

}  // namespace lucid
