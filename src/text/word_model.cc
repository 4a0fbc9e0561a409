#include "text/word_model.h"

#include <fmt/format.h>

namespace lucid {

ModelVocab::ModelVocab(const VocabSpec& spec)
    : spec_(spec), table_(spec.tokens), ordinary_(spec.tokens.size(), 1) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenKind kind = spec.kinds[id];
    const bool outside = id < spec.outside_model.size() && spec.outside_model[id] != 0;
    if (outside || kind == TokenKind::kControl || kind == TokenKind::kByte) ordinary_[id] = 0;
  }
  has_byte_tokens_ = spec.byte_fallback;
  for (int byte = 0; byte < 256; ++byte) {
    const TokenId id = table_.Find(fmt::format("<0x{:02X}>", byte));
    byte_tokens_[static_cast<size_t>(byte)] = id;
    if (id < 0) has_byte_tokens_ = false;
  }
}

TokenId ModelVocab::FindOrdinary(std::string_view piece) const {
  const TokenId id = table_.Find(piece);
  return id >= 0 && IsOrdinary(id) ? id : -1;
}

}  // namespace lucid
