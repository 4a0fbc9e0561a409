// Tokenizer: text to ids and back, equal to the Hugging Face `tokenizers` library id for id.
//
// Built from a VocabSpec; immutable afterwards and safe to use from many threads. Encoding is near
// linear in the length of the text. Streaming output goes through detokenizer.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/vocab_spec.h"

namespace lucid {

// How text that spells an added token (`<|im_end|>`) is read.
enum class AddedTokenMode {
  kParseSpecial,   // every added token is recognised (the default of `tokenizers`)
  kSpecialAsText,  // special ones are ordinary text, the other added tokens are recognised
  kNone,           // no added token is recognised: for text that comes from users and tools
};

struct EncodeOptions {
  bool add_special = true;  // BOS and EOS where the file asks for them
  AddedTokenMode added_tokens = AddedTokenMode::kParseSpecial;
  // Byte offsets of the text, ascending, at which no added token begins: what is spelled there is
  // ordinary text.
  std::span<const size_t> plain_starts;
};

class Tokenizer {
 public:
  // kInvalidFile if the data contradicts itself (a merge of unknown pieces, an id out of range);
  // kUnsupported for a pre-tokenizer this build does not know.
  static Result<std::unique_ptr<Tokenizer>> Create(VocabSpec spec);
  virtual ~Tokenizer() = default;

  // Invalid UTF-8 is encoded too (as bytes where the vocabulary can, as U+FFFD where it cannot). A
  // byte-level vocabulary that lacks a byte and has no unknown token leaves the byte out.
  virtual std::vector<TokenId> Encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // The text of a whole list. Ids out of range add nothing. `skip_special` leaves out control
  // tokens and the unknown token.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special = false) const = 0;

  // The bytes that `id` stands for inside a text (a lone part of a character stays a part).
  virtual std::string_view PieceBytes(TokenId id) const = 0;

  // The entry as the file spells it, e.g. "Ġworld", "▁world", "<0x0A>".
  virtual std::string_view PieceText(TokenId id) const = 0;

  virtual TokenKind Kind(TokenId id) const = 0;
  // The id of the entry spelled exactly `piece`, or -1.
  virtual TokenId Find(std::string_view piece) const = 0;
  bool IsEndOfGeneration(TokenId id) const;
  bool IsSpecial(
      TokenId id) const;  // a control token or the unknown token: adds no text for a reader

  int n_tokens() const { return static_cast<int>(spec().tokens.size()); }
  virtual const VocabSpec& spec() const = 0;
};

}  // namespace lucid
