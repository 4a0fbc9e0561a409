#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace lucid {
namespace {

// Where the last character before `at` begins.
size_t Before(std::string_view text, size_t at) {
  size_t start = at - 1;
  while (start > 0 && at - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
    --start;
  return start + DecodeUtf8(text, start).length == at ? start : at - 1;
}

bool WordCharBefore(std::string_view text, size_t at) {
  return at > 0 && IsWordChar(DecodeUtf8(text, Before(text, at)).code);
}

bool WordCharAt(std::string_view text, size_t at) {
  return at < text.size() && IsWordChar(DecodeUtf8(text, at).code);
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& added, bool normalized,
                         const Normalizer& normalizer) {
  for (const AddedToken& token : added) {
    if (token.normalized != normalized || token.content.empty()) continue;
    const std::string spelling = normalized ? normalizer.Apply(token.content) : token.content;
    trie_.Insert(spelling, static_cast<int32_t>(tokens_.size()));
    tokens_.push_back(token);
  }
}

int32_t AddedTokens::LongestAt(std::string_view text, size_t at, size_t* end) const {
  int32_t found = -1;
  int32_t node = trie_.root();
  for (size_t i = at; i < text.size();) {
    node = trie_.Child(node, static_cast<unsigned char>(text[i++]));
    if (node == Trie::kNone) break;
    if (trie_.Value(node) != Trie::kNone) {
      found = trie_.Value(node);
      *end = i;
    }
  }
  return found;
}

std::vector<AddedSpan> AddedTokens::Split(std::string_view text, AddedTokenMode mode,
                                          std::span<const size_t> plain_starts) const {
  std::vector<AddedSpan> spans;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !empty() && mode != AddedTokenMode::kNone;) {
    size_t end = at;
    const int32_t index = LongestAt(text, at, &end);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    at = end;  // a match that the rules refuse is passed over whole
    if (token.special && mode == AddedTokenMode::kSpecialAsText) continue;
    if (std::binary_search(plain_starts.begin(), plain_starts.end(), begin)) continue;
    if (token.single_word && (WordCharBefore(text, begin) || WordCharAt(text, end))) continue;
    if (token.lstrip) {
      while (begin > done && IsWhitespace(DecodeUtf8(text, Before(text, begin)).code))
        begin = Before(text, begin);
    }
    if (token.rstrip) {
      while (end < text.size() && IsWhitespace(DecodeUtf8(text, end).code))
        end += DecodeUtf8(text, end).length;
    }
    begin = std::max(begin, done);
    if (done < begin) spans.push_back({-1, done, begin});
    spans.push_back({token.id, begin, end});
    done = end;
    at = std::max(at, done);
  }
  if (done < text.size()) spans.push_back({-1, done, text.size()});
  return spans;
}

}  // namespace lucid
