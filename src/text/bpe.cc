#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <string>

#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace lucid {

Result<std::unique_ptr<BpeModel>> BpeModel::Create(const ModelVocab& vocab) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocab));
  for (size_t byte = 0; byte < 256; ++byte) {
    model->byte_ids_[byte] = vocab.spec().byte_level ? vocab.Find(ByteAlphabet()[byte]) : -1;
  }
  LUCID_RETURN_IF_ERROR(model->AddMerges());
  return model;
}

// The result of a merge is mostly the entry after the result of the merge before, or that same
// entry made of other halves: then one comparison tells.
TokenId BpeModel::FindJoined(std::string_view left, std::string_view tail, TokenId guess) const {
  const std::vector<std::string>& tokens = vocab_.spec().tokens;
  for (const TokenId id : {guess, guess + 1}) {
    if (vocab_.has_twins() || static_cast<size_t>(id) >= tokens.size()) break;
    const std::string_view piece = tokens[static_cast<size_t>(id)];
    if (piece.size() == left.size() + tail.size() && piece.starts_with(left) &&
        piece.ends_with(tail))
      return id;
  }
  return vocab_.Find(std::string(left).append(tail));
}

// In blocks: looking up two pieces and a pair for each merge is waiting for memory, unless many
// look-ups wait at once.
Status BpeModel::AddMerges() {
  const VocabSpec& spec = vocab_.spec();
  merges_.resize(std::bit_ceil(std::max<size_t>(16, spec.merges.size() * 2)));
  mask_ = merges_.size() - 1;
  const std::string_view prefix = spec.continuing_subword_prefix;
  constexpr size_t kBlock = 64;
  std::array<std::array<uint64_t, 2>, kBlock> hashes;
  std::array<Entry, kBlock> entries;
  TokenId last = -1;
  for (size_t first = 0; first < spec.merges.size(); first += kBlock) {
    const size_t n = std::min(kBlock, spec.merges.size() - first);
    for (size_t i = 0; i < n; ++i) {
      const auto [left, right] = spec.merges[first + i];
      hashes[i] = {HashBytes(left), HashBytes(right)};
      for (const uint64_t hash : hashes[i]) vocab_.table().Prefetch(hash);
    }
    for (size_t i = 0; i < n; ++i) {
      for (const uint64_t hash : hashes[i]) vocab_.table().PrefetchPiece(hash);
    }
    for (size_t i = 0; i < n; ++i) {
      const auto [left, right] = spec.merges[first + i];
      std::string_view tail = right;
      if (!prefix.empty() && tail.starts_with(prefix)) tail.remove_prefix(prefix.size());
      const TokenId a = vocab_.table().Find(left, hashes[i][0]);
      const TokenId b = vocab_.table().Find(right, hashes[i][1]);
      const TokenId id = FindJoined(left, tail, last);
      if (a < 0 || b < 0 || id < 0) {
        const std::string joined = std::string(left).append(tail);
        const std::string_view missing = a < 0 ? left : b < 0 ? right : joined;
        return Err(
            ErrorCode::kInvalidFile,
            "merge {} (\"{}\" + \"{}\") needs the piece \"{}\", which is not in the vocabulary",
            first + i, left, right, missing);
      }
      last = id;
      entries[i] = {static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b),
                    static_cast<uint32_t>(first + i), id};
      __builtin_prefetch(&merges_[HashOf(entries[i].pair) & mask_]);
    }
    // Of the same pair given twice, the later counts, as in `tokenizers`.
    for (size_t i = 0; i < n; ++i) merges_[Slot(entries[i].pair)] = entries[i];
  }
  return {};
}

size_t BpeModel::Slot(uint64_t pair) const {
  size_t at = HashOf(pair) & mask_;
  while (merges_[at].pair != kFree && merges_[at].pair != pair) at = (at + 1) & mask_;
  return at;
}

TokenId BpeModel::FindWhole(std::string_view word) const {
  if (!vocab_.spec().byte_level) return vocab_.FindOrdinary(word);
  if (word.size() > vocab_.max_length()) return -1;
  std::string spelled;
  spelled.reserve(word.size() * 2);
  for (const char c : word) spelled += ByteAlphabet()[static_cast<unsigned char>(c)];
  return vocab_.FindOrdinary(spelled);
}

void BpeModel::BytesToSymbols(std::string_view word, std::vector<MergeSymbol>& symbols) const {
  for (size_t at = 0; at < word.size(); ++at) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(word[at])];
    // A vocabulary without this byte and without an unknown token drops it.
    const TokenId known = id >= 0 ? id : vocab_.spec().unk_id;
    if (known >= 0)
      symbols.push_back({.id = known, .begin = static_cast<uint32_t>(at), .length = 1});
  }
}

void BpeModel::CharactersToSymbols(std::string_view word, std::vector<MergeSymbol>& symbols) const {
  const VocabSpec& spec = vocab_.spec();
  std::string spelled;
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const Utf8Char c = DecodeUtf8(word, at);
    const bool last = at + c.length == word.size();
    spelled.clear();
    if (at > 0) spelled += spec.continuing_subword_prefix;
    spelled += c.code >= 0 ? word.substr(at, c.length) : std::string_view("\xEF\xBF\xBD");
    if (last) spelled += spec.end_of_word_suffix;
    const auto add = [&](TokenId id, size_t begin, size_t length) {
      symbols.push_back({.id = id,
                         .begin = static_cast<uint32_t>(begin),
                         .length = static_cast<uint32_t>(length)});
    };
    const TokenId id = c.code < 0 && vocab_.has_byte_tokens() ? -1 : vocab_.FindOrdinary(spelled);
    const bool was_unknown = std::exchange(after_unknown, false);
    if (id >= 0) {
      add(id, at, c.length);
    } else if (vocab_.has_byte_tokens()) {
      for (size_t i = 0; i < c.length; ++i)
        add(vocab_.ByteToken(static_cast<unsigned char>(word[at + i])), at + i, 1);
    } else if (spec.unk_id >= 0) {
      after_unknown = true;
      if (was_unknown && spec.fuse_unk) {
        symbols.back().length += c.length;
      } else {
        add(spec.unk_id, at, c.length);
      }
    }
    at += c.length;
  }
}

void BpeModel::Encode(std::string_view word, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  if (vocab_.spec().ignore_merges) {
    if (const TokenId whole = FindWhole(word); whole >= 0) {
      out.push_back(whole);
      return;
    }
  }
  // Kept per thread: a short word then costs no allocation.
  thread_local std::vector<MergeSymbol> symbols;
  symbols.clear();
  if (vocab_.spec().byte_level) {
    BytesToSymbols(word, symbols);
  } else {
    CharactersToSymbols(word, symbols);
  }
  LinkSymbols(symbols);
  MergeSymbols(symbols, [this](const MergeSymbol& left, const MergeSymbol& right) {
    const uint64_t pair = static_cast<uint64_t>(left.id) << 32 | static_cast<uint32_t>(right.id);
    const Entry& entry = merges_[Slot(pair)];
    return std::pair(entry.rank, entry.id);
  });
  for (const MergeSymbol& symbol : symbols) {
    if (symbol.length > 0) out.push_back(symbol.id);
  }
  if (symbols.capacity() > kKeptSymbols) std::vector<MergeSymbol>().swap(symbols);
}

}  // namespace lucid
