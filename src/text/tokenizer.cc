#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/metaspace_cuts.h"
#include "text/normalizer.h"
#include "text/pretokenize.h"
#include "text/spm.h"
#include "text/unicode.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace lucid {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // "▁"

// A text without any added token is encoded in parts of at most this many bytes, so that positions
// fit 32 bits and scratch memory has a bound. No prompt comes near it.
constexpr size_t kMaxPart = size_t{256} << 20;

// The ids of words already encoded in the same text. A slot points at the word's first place in the
// text and at the ids it got in the output, so nothing is copied.
class WordCache {
 public:
  // For a text of `n_words` words whose ids begin at out[first].
  WordCache(std::string_view text, size_t n_words, size_t first)
      : text_(text),
        first_(first),
        slots_(std::bit_ceil(std::clamp(n_words / 4, kMinSlots, kMaxSlots))) {}

  // Copies the ids of an earlier equal word; false if there is none.
  bool Repeat(const PieceRange& word, std::vector<TokenId>& out) {
    const std::string_view bytes = Word(word);
    slot_ = &slots_[HashBytes(bytes) & (slots_.size() - 1)];
    if (slot_->word.end == 0 || Word(slot_->word) != bytes) return false;
    const size_t at = out.size();
    out.resize(at + slot_->count);
    std::copy_n(out.begin() + static_cast<ptrdiff_t>(first_ + slot_->begin), slot_->count,
                out.begin() + static_cast<ptrdiff_t>(at));
    return true;
  }

  // Remembers that the word last asked for became out[begin, end).
  void Keep(const PieceRange& word, size_t begin, size_t end) {
    *slot_ = {word, static_cast<uint32_t>(begin - first_), static_cast<uint32_t>(end - begin)};
  }

 private:
  // A word that occurs once costs a slot: with a slot for every fourth word of a text, few words
  // that come again have been driven out.
  static constexpr size_t kMinSlots = 64, kMaxSlots = size_t{1} << 16;
  struct Slot {
    PieceRange word;  // end 0: free
    uint32_t begin = 0, count = 0;
  };
  std::string_view Word(const PieceRange& word) const {
    return text_.substr(word.begin, word.end - word.begin);
  }

  std::string_view text_;
  size_t first_;
  std::vector<Slot> slots_;
  Slot* slot_ = nullptr;
};

// The bytes each entry stands for, end to end in one string.
class PieceBytesTable {
 public:
  explicit PieceBytesTable(const VocabSpec& spec) {
    std::vector<uint8_t> raw(spec.tokens.size());
    for (const AddedToken& token : spec.added) raw[static_cast<size_t>(token.id)] = 1;
    ends_.reserve(spec.tokens.size() + 1);
    ends_.push_back(0);
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      Append(spec, static_cast<TokenId>(id), raw[id] != 0);
      ends_.push_back(bytes_.size());
    }
  }

  std::string_view At(size_t id) const {
    return std::string_view(bytes_).substr(ends_[id], ends_[id + 1] - ends_[id]);
  }

 private:
  static int HexDigit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  }

  void Append(const VocabSpec& spec, TokenId id, bool raw) {
    const std::string& piece = spec.tokens[static_cast<size_t>(id)];
    const TokenKind kind = spec.kinds[static_cast<size_t>(id)];
    if (kind == TokenKind::kByte && piece.size() == 6 && piece.starts_with("<0x") &&
        HexDigit(piece[3]) >= 0 && HexDigit(piece[4]) >= 0) {
      bytes_.push_back(static_cast<char>(HexDigit(piece[3]) * 16 + HexDigit(piece[4])));
    } else if (raw || kind == TokenKind::kControl) {
      AppendWord(spec, piece, /*may_follow_space=*/spec.decoder.word_piece);
    } else if (spec.byte_level) {
      AppendBytesOfPiece(piece, bytes_);
    } else {
      AppendWord(spec, piece, spec.decoder.word_piece);
    }
  }

  void AppendWord(const VocabSpec& spec, std::string_view piece, bool may_follow_space) {
    std::string word;
    const std::string_view prefix = spec.continuing_subword_prefix;
    if (may_follow_space && !prefix.empty() && piece.starts_with(prefix)) {
      piece.remove_prefix(prefix.size());
    } else if (may_follow_space) {
      word = " ";
    }
    const std::string_view suffix = spec.decoder.suffix;
    const bool ends_word = !suffix.empty() && piece.ends_with(suffix);
    if (ends_word) piece.remove_suffix(suffix.size());
    for (size_t at = 0; at < piece.size();) {
      const bool space = spec.decoder.metaspace && piece.substr(at).starts_with(kMetaspace);
      word.push_back(space ? ' ' : piece[at]);
      at += space ? kMetaspace.size() : 1;
    }
    if (ends_word) word.push_back(' ');
    if (spec.decoder.cleanup) CleanUp(word);
    bytes_ += word;
  }

  // What the WordPiece decoder of `tokenizers` does to each piece.
  static void CleanUp(std::string& word) {
    constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) {
      for (size_t at = word.find(from); at != std::string::npos;
           at = word.find(from, at + to.size())) {
        word.replace(at, from.size(), to);
      }
    }
  }

  std::string bytes_;
  std::vector<size_t> ends_;
};

class TokenizerImpl final : public Tokenizer {
 public:
  explicit TokenizerImpl(VocabSpec spec) : spec_(std::move(spec)), vocab_(spec_), bytes_(spec_) {}

  Status Init() {
    LUCID_ASSIGN_OR_RETURN(normalizer_, Normalizer::Create(spec_.normalizer));
    LUCID_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::Create(spec_.pre_tokenizer));
    raw_added_ = std::make_unique<AddedTokens>(spec_.added, false, *normalizer_);
    normalized_added_ = std::make_unique<AddedTokens>(spec_.added, true, *normalizer_);
    LUCID_RETURN_IF_ERROR(CreateModel());
    cuts_ = MetaspaceCuts(vocab_);
    return {};
  }

  Status CreateModel() {
    switch (spec_.model) {
      case TokenModel::kBpe: {
        LUCID_ASSIGN_OR_RETURN(model_, BpeModel::Create(vocab_));
        return {};
      }
      case TokenModel::kSpmBpe:
        model_ = std::make_unique<SpmModel>(vocab_);
        return {};
      case TokenModel::kUnigram:
        model_ = std::make_unique<UnigramModel>(vocab_);
        return {};
      case TokenModel::kWordPiece:
        model_ = std::make_unique<WordPieceModel>(vocab_);
        return {};
    }
    return {};
  }

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> out;
    if (options.add_special) out = spec_.prefix_ids;
    for (const AddedSpan& span :
         raw_added_->Split(text, options.added_tokens, options.plain_starts)) {
      if (span.id >= 0) {
        out.push_back(span.id);
        continue;
      }
      const std::string_view part = text.substr(span.begin, span.end - span.begin);
      EncodeText(part, span.begin == 0, options, out);
    }
    if (options.add_special)
      out.insert(out.end(), spec_.suffix_ids.begin(), spec_.suffix_ids.end());
    return out;
  }

  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string out;
    bool at_start = true;
    for (const TokenId id : ids) {
      if (skip_special && IsSpecial(id)) continue;
      std::string_view bytes = PieceBytes(id);
      if (at_start && spec_.decoder.strip_leading_space && bytes.starts_with(' '))
        bytes.remove_prefix(1);
      at_start = at_start && PieceBytes(id).empty();
      out += bytes;
    }
    return out;
  }

  std::string_view PieceBytes(TokenId id) const override {
    return InRange(id) ? bytes_.At(static_cast<size_t>(id)) : "";
  }
  std::string_view PieceText(TokenId id) const override {
    return InRange(id) ? std::string_view(spec_.tokens[static_cast<size_t>(id)]) : "";
  }
  TokenKind Kind(TokenId id) const override {
    return InRange(id) ? spec_.kinds[static_cast<size_t>(id)] : TokenKind::kUnused;
  }
  TokenId Find(std::string_view piece) const override { return vocab_.Find(piece); }
  const VocabSpec& spec() const override { return spec_; }

 private:
  bool InRange(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < spec_.tokens.size();
  }

  // A text between added tokens.
  void EncodeText(std::string_view text, bool at_start, const EncodeOptions& options,
                  std::vector<TokenId>& out) const {
    std::string owned;
    if (!normalizer_->empty()) {
      owned = normalizer_->Apply(text);
      text = owned;
    }
    if (normalized_added_->empty()) return EncodeNormalized(text, at_start, out);
    for (const AddedSpan& span : normalized_added_->Split(text, options.added_tokens)) {
      if (span.id >= 0) {
        out.push_back(span.id);
      } else {
        EncodeNormalized(text.substr(span.begin, span.end - span.begin),
                         at_start && span.begin == 0, out);
      }
    }
  }

  void EncodeNormalized(std::string_view text, bool at_start, std::vector<TokenId>& out) const {
    while (text.size() > kMaxPart) {
      const size_t cut = kMaxPart - IncompleteTail(text.substr(0, kMaxPart));
      EncodeNormalized(text.substr(0, cut), at_start, out);
      text.remove_prefix(cut);
      at_start = false;
    }
    PreTokenized pieces(text);
    if (cuts_.any()) {
      cuts_.Split(pieces);
    } else {
      pre_tokenizer_->Apply(at_start, pieces);
    }
    // Below this many words the cache costs more than it saves.
    constexpr size_t kCachedWords = 256;
    if (pieces.pieces.size() < kCachedWords) {
      for (const PieceRange& piece : pieces.pieces) model_->Encode(pieces.At(piece), out);
      return;
    }
    WordCache cache(pieces.text(), pieces.pieces.size(), out.size());
    for (const PieceRange& piece : pieces.pieces) {
      if (piece.begin == piece.end || cache.Repeat(piece, out)) continue;
      const size_t begin = out.size();
      model_->Encode(pieces.At(piece), out);
      cache.Keep(piece, begin, out.size());
    }
  }

  VocabSpec spec_;
  ModelVocab vocab_;
  PieceBytesTable bytes_;
  std::optional<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<AddedTokens> raw_added_, normalized_added_;
  std::unique_ptr<WordModel> model_;
  MetaspaceCuts cuts_;
};

// Every id the data names must be one of the entries.
Status CheckSpec(const VocabSpec& spec) {
  const size_t n = spec.tokens.size();
  if (n == 0) return Err(ErrorCode::kInvalidFile, "the vocabulary is empty");
  if (n > static_cast<size_t>(INT32_MAX))
    return Err(ErrorCode::kInvalidFile, "the vocabulary has {} entries", n);
  if (spec.kinds.size() != n) {
    return Err(ErrorCode::kInvalidFile, "{} token types for {} tokens", spec.kinds.size(), n);
  }
  const bool scored = spec.model == TokenModel::kSpmBpe || spec.model == TokenModel::kUnigram;
  if (scored && spec.scores.size() != n) {
    return Err(ErrorCode::kInvalidFile, "{} scores for {} tokens", spec.scores.size(), n);
  }
  for (size_t i = 0; i < spec.scores.size(); ++i) {
    if (std::isnan(spec.scores[i]))
      return Err(ErrorCode::kInvalidFile, "the score of token {} is not a number", i);
  }
  const auto check = [&](const char* what, TokenId id, TokenId lowest) -> Status {
    if (id < lowest || id >= static_cast<int64_t>(n)) {
      return Err(ErrorCode::kInvalidFile, "{} {} is not in the vocabulary of {} tokens", what, id,
                 n);
    }
    return {};
  };
  LUCID_RETURN_IF_ERROR(check("bos id", spec.bos_id, -1));
  LUCID_RETURN_IF_ERROR(check("eos id", spec.eos_id, -1));
  LUCID_RETURN_IF_ERROR(check("unknown id", spec.unk_id, -1));
  LUCID_RETURN_IF_ERROR(check("padding id", spec.pad_id, -1));
  LUCID_RETURN_IF_ERROR(check("separator id", spec.sep_id, -1));
  LUCID_RETURN_IF_ERROR(check("class id", spec.cls_id, -1));
  for (const AddedToken& token : spec.added)
    LUCID_RETURN_IF_ERROR(check("added token", token.id, 0));
  for (const TokenId id : spec.eog_ids) LUCID_RETURN_IF_ERROR(check("end-of-generation id", id, 0));
  for (const TokenId id : spec.prefix_ids) LUCID_RETURN_IF_ERROR(check("prefix id", id, 0));
  for (const TokenId id : spec.suffix_ids) LUCID_RETURN_IF_ERROR(check("suffix id", id, 0));
  return {};
}

}  // namespace

bool Tokenizer::IsSpecial(TokenId id) const {
  const TokenKind kind = Kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  const std::vector<TokenId>& ids = spec().eog_ids;
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(VocabSpec spec) {
  LUCID_RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.prefix_ids.empty() && spec.suffix_ids.empty()) {
    if (spec.add_bos && spec.bos_id >= 0) spec.prefix_ids = {spec.bos_id};
    if (spec.add_eos && spec.eos_id >= 0) spec.suffix_ids = {spec.eos_id};
  }
  auto tokenizer = std::make_unique<TokenizerImpl>(std::move(spec));
  LUCID_RETURN_IF_ERROR(tokenizer->Init());
  return tokenizer;
}

}  // namespace lucid
