// Detokenizer: the text of a growing list of ids, without ever showing half a UTF-8 character.
//
// The concatenation of everything Add() and Finish() return equals Tokenizer::Decode of the whole
// list.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace lucid {

class Detokenizer {
 public:
  // `skip_special`: control tokens add no text. The tokenizer must outlive this object.
  // `at_start` false: the ids continue a text, so no leading space is dropped.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true, bool at_start = true);

  // Returns the text that has become certain with `id`: whole characters only, possibly empty.
  // Bytes that can no longer become a character are returned as they are.
  std::string Add(TokenId id);

  // Returns what is still held back (the bytes of an unfinished character) and resets.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool starts_at_start_;
  bool at_start_;        // SPM: the first piece loses its leading space
  std::string pending_;  // an unfinished character, at most 3 bytes
};

}  // namespace lucid
