#include "text/spm.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "text/merge_queue.h"
#include "text/unicode.h"

namespace lucid {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // "▁"

}  // namespace

SpmModel::SpmModel(const ModelVocab& vocab)
    : vocab_(vocab), rank_(vocab.spec().tokens.size()), memo_(vocab.spec().tokens.size()) {
  const std::vector<float>& scores = vocab.spec().scores;
  std::vector<uint32_t> order(rank_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto better = [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; };
  if (!std::is_sorted(order.begin(), order.end(), better))  // many files are in this order
    std::stable_sort(order.begin(), order.end(), better);
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] < scores[order[i - 1]]) ++rank;
    rank_[order[i]] = rank;
  }
  for (size_t byte = 0; byte < ascii_.size(); ++byte) {
    const char c = static_cast<char>(byte);
    ascii_[byte] = vocab.FindOrdinary({&c, 1});
  }
  metaspace_ = vocab.FindOrdinary(kMetaspace);
}

SpmModel::Character SpmModel::CharacterAt(std::string_view word, size_t at) const {
  const auto first = static_cast<unsigned char>(word[at]);
  if (first < ascii_.size()) return {ascii_[first], 1};
  if (word.substr(at).starts_with(kMetaspace)) return {metaspace_, kMetaspace.size()};
  const Utf8Char c = DecodeUtf8(word, at);
  return {c.code < 0 ? -1 : vocab_.FindOrdinary(word.substr(at, c.length)), c.length};
}

TokenId SpmModel::Joined(std::string_view word, const MergeSymbol& left,
                         const MergeSymbol& right) const {
  const size_t length = left.length + right.length;
  if (length > vocab_.max_length()) return -1;
  const std::string_view text = word.substr(left.begin, length);
  if (left.id < 0 || right.id < 0) return vocab_.FindOrdinary(text);
  const auto known = memo_.Get(left.id, right.id);
  if (known) return *known;
  const TokenId id = vocab_.FindOrdinary(text);
  memo_.Put(left.id, right.id, id);
  return id;
}

void SpmModel::Encode(std::string_view word, std::vector<TokenId>& out) const {
  thread_local std::vector<MergeSymbol> symbols;
  symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const Character c = CharacterAt(word, at);
    symbols.push_back({.id = c.id, .begin = static_cast<uint32_t>(at), .length = c.length});
    at += c.length;
  }
  LinkSymbols(symbols);
  MergeSymbols(symbols, [&](const MergeSymbol& left, const MergeSymbol& right) {
    const TokenId id = Joined(word, left, right);
    return std::pair<uint32_t, int32_t>(id < 0 ? kNoMerge : rank_[static_cast<size_t>(id)], id);
  });
  bool after_unknown = false;
  for (const MergeSymbol& symbol : symbols) {
    if (symbol.length == 0) continue;
    const bool was_unknown = std::exchange(after_unknown, false);
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
    } else if (vocab_.has_byte_tokens()) {
      for (const char c : word.substr(symbol.begin, symbol.length)) {
        out.push_back(vocab_.ByteToken(static_cast<unsigned char>(c)));
      }
    } else if (vocab_.spec().unk_id >= 0) {
      after_unknown = true;
      if (!was_unknown || !vocab_.spec().fuse_unk) out.push_back(vocab_.spec().unk_id);
    }
  }
  if (symbols.capacity() > kKeptSymbols) std::vector<MergeSymbol>().swap(symbols);
}

}  // namespace lucid
