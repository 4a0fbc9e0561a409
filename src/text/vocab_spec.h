// VocabSpec: everything a tokenizer file says, as plain data, before any table is built.
//
// Made by hf_tokenizer.h (tokenizer.json) and by engine/tokenizer_loader.h (GGUF metadata);
// consumed by tokenizer.h. Whatever a file cannot say is left at the default of the Hugging Face
// `tokenizers` library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lucid {

using TokenId = int32_t;

enum class TokenModel { kBpe, kSpmBpe, kUnigram, kWordPiece };

// What a vocabulary entry is; the values are those of GGUF `tokenizer.ggml.token_type`.
enum class TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // special: <s>, <|im_end|>; parsed in text only where asked, not printed
  kUserDefined = 4,  // added, but ordinary text: always matched whole, printed
  kUnused = 5,
  kByte = 6,  // <0xE4>: one raw byte
};

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool lstrip = false;       // also swallows white space on its left
  bool rstrip = false;       // ... on its right
  bool single_word = false;  // matches only between non-word characters
  bool normalized = false;   // matched in the normalised text instead of the raw one
};

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,
    kStripAccents,
    kPrepend,
    kReplace,
    kBertNormalizer,
    kPrecompiled
  };
  Kind kind = Kind::kNfc;
  std::string pattern;  // kReplace: literal or regex
  bool pattern_is_regex = false;
  std::string content;  // kPrepend, kReplace: the text put there; kPrecompiled: the charsmap bytes
  bool strip_left = true;  // kStrip
  bool strip_right = true;
  bool clean_text = true;  // kBertNormalizer
  bool handle_chinese_chars = true;
  bool strip_accents = false;
  bool lowercase = false;
};

// What becomes of the matches of a split pattern; names as in the `tokenizers` library.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizerStep {
  enum class Kind {
    kSplit,
    kByteLevel,
    kMetaspace,
    kDigits,
    kPunctuation,
    kWhitespace,
    kWhitespaceSplit,
    kBert
  };
  Kind kind = Kind::kSplit;
  std::string pattern;  // kSplit
  bool pattern_is_regex = true;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool add_prefix_space = false;   // kByteLevel
  bool use_regex = false;          // kByteLevel: the GPT-2 pattern
  bool individual_digits = false;  // kDigits
  enum class Prepend { kAlways, kFirst, kNever };
  Prepend prepend_scheme = Prepend::kAlways;  // kMetaspace
  bool split = true;                          // kMetaspace
};

// How pieces become text again, beyond the byte alphabet and byte tokens.
struct DecoderSpec {
  bool metaspace = false;            // "▁" is a space
  bool strip_leading_space = false;  // the first piece of a text loses one space
  bool word_piece = false;           // pieces without the continuing prefix follow a space
  bool cleanup = false;  // WordPiece: no space before punctuation and English contractions
  std::string suffix;    // end of a word, printed as a space (none: "")
};

// The merges of a BPE by rank. They stand end to end in one string: a model has hundreds of
// thousands, and a pair of strings for each would cost more than all that is done with them.
class MergeList {
 public:
  void reserve(size_t n) {
    ends_.reserve(n);
    bytes_.reserve(n * kUsualBytes);
  }
  void emplace_back(std::string_view left, std::string_view right) {
    bytes_.append(left);
    const size_t middle = bytes_.size();
    bytes_.append(right);
    ends_.push_back({middle, bytes_.size()});
  }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  // Views hold until the list changes.
  std::pair<std::string_view, std::string_view> operator[](size_t rank) const {
    const std::string_view all = bytes_;
    const size_t begin = rank == 0 ? 0 : ends_[rank - 1].right;
    const auto [middle, end] = ends_[rank];
    return {all.substr(begin, middle - begin), all.substr(middle, end - middle)};
  }

 private:
  static constexpr size_t kUsualBytes = 16;
  struct Ends {
    size_t left, right;
  };
  std::string bytes_;
  std::vector<Ends> ends_;
};

struct VocabSpec {
  TokenModel model = TokenModel::kBpe;
  std::string pre_name;  // GGUF `tokenizer.ggml.pre`, for messages; "" from tokenizer.json

  std::vector<std::string>
      tokens;                    // by id, as the file spells them (byte-level pieces stay mapped)
  std::vector<float> scores;     // SPM and unigram; empty otherwise
  std::vector<TokenKind> kinds;  // by id; same length as tokens
  MergeList merges;              // BPE
  std::vector<AddedToken> added;
  std::vector<uint8_t> outside_model;  // by id, 1: only `added` names the entry, the model never
                                       // makes it; empty: none

  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool byte_level = false;     // tokens are spelled in the GPT-2 byte alphabet
  bool byte_fallback = false;  // unknown characters become <0xXX>
  bool ignore_merges = false;  // a word that is a token is taken whole before any merge
  bool fuse_unk = false;
  bool add_space_prefix = false;  // SPM: "▁" before the text
  bool remove_extra_whitespaces = false;
  std::string continuing_subword_prefix;  // WordPiece "##"
  std::string end_of_word_suffix;
  int max_input_chars_per_word = 100;  // WordPiece

  TokenId bos_id = -1, eos_id = -1, unk_id = -1, pad_id = -1, sep_id = -1, cls_id = -1;
  std::vector<TokenId> eog_ids;  // every id that ends a generation (eos, <|im_end|>, ...)
  bool add_bos = false;          // encode() puts BOS first where special tokens are asked for
  bool add_eos = false;
  // What encode() puts around the text where special tokens are asked for, e.g. [CLS] ... [SEP].
  // Where both are empty, add_bos and add_eos decide.
  std::vector<TokenId> prefix_ids, suffix_ids;

  DecoderSpec decoder;
};

}  // namespace lucid
