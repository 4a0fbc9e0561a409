#include "text/detokenizer.h"

#include <utility>

#include "text/unicode.h"

namespace lucid {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool at_start)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      starts_at_start_(at_start),
      at_start_(at_start) {}

std::string Detokenizer::Add(TokenId id) {
  if (skip_special_ && tokenizer_.IsSpecial(id)) return "";
  std::string_view bytes = tokenizer_.PieceBytes(id);
  if (bytes.empty()) return "";
  if (std::exchange(at_start_, false) && tokenizer_.spec().decoder.strip_leading_space &&
      bytes.starts_with(' ')) {
    bytes.remove_prefix(1);
  }
  std::string ready = std::exchange(pending_, {});
  ready += bytes;
  const size_t held = IncompleteTail(ready);
  pending_.assign(ready, ready.size() - held, held);
  ready.resize(ready.size() - held);
  return ready;
}

std::string Detokenizer::Finish() {
  at_start_ = starts_at_start_;
  return std::exchange(pending_, {});
}

}  // namespace lucid
