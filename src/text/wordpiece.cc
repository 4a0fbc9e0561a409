#include "text/wordpiece.h"

#include <algorithm>
#include <string>

#include "text/unicode.h"

namespace lucid {

void WordPieceModel::Encode(std::string_view word, std::vector<TokenId>& out) const {
  const VocabSpec& spec = vocab_.spec();
  const auto unknown = [&] {
    if (spec.unk_id >= 0) out.push_back(spec.unk_id);
  };
  std::vector<size_t> ends;  // of the characters
  for (size_t at = 0; at < word.size();) {
    at += DecodeUtf8(word, at).length;
    ends.push_back(at);
  }
  if (ends.size() > static_cast<size_t>(spec.max_input_chars_per_word)) return unknown();

  const size_t kept = out.size();
  std::string piece;
  size_t begin = 0;
  size_t first_char = 0;
  while (begin < word.size()) {
    const std::string_view prefix =
        begin > 0 ? std::string_view(spec.continuing_subword_prefix) : std::string_view();
    TokenId id = -1;
    // Nothing longer than the longest entry can be one, whatever the file allows as a word.
    size_t last = std::min(ends.size(), first_char + vocab_.max_length());
    for (; last > first_char && id < 0; --last) {
      piece.assign(prefix).append(word.substr(begin, ends[last - 1] - begin));
      id = vocab_.FindOrdinary(piece);
    }
    if (id < 0) {
      out.resize(kept);
      return unknown();
    }
    out.push_back(id);
    begin = ends[last];
    first_char = last + 1;
  }
}

}  // namespace lucid
