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

Status BpeModel::AddMerges() {
  const VocabSpec& spec = vocab_.spec();
  merges_.resize(std::bit_ceil(std::max<size_t>(16, spec.merges.size() * 2)));
  mask_ = merges_.size() - 1;
  const std::string_view prefix = spec.continuing_subword_prefix;
  std::string joined;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    std::string_view tail = right;
    if (!prefix.empty() && tail.starts_with(prefix)) tail.remove_prefix(prefix.size());
    joined.assign(left).append(tail);
    const TokenId a = vocab_.Find(left);
    const TokenId b = vocab_.Find(right);
    const TokenId id = vocab_.Find(joined);
    if (a < 0 || b < 0 || id < 0) {
      const std::string_view missing = a < 0 ? left : b < 0 ? std::string_view(right) : joined;
      return Err(
          ErrorCode::kInvalidFile,
          "merge {} (\"{}\" + \"{}\") needs the piece \"{}\", which is not in the vocabulary", rank,
          left, right, missing);
    }
    const uint64_t pair = static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b);
    // Of the same pair given twice, the later counts, as in `tokenizers`.
    merges_[Slot(pair)] = {pair, static_cast<uint32_t>(rank), id};
  }
  return {};
}

size_t BpeModel::Slot(uint64_t pair) const {
  uint64_t hash = pair * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 32;
  size_t at = hash & mask_;
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
