// PreTokenizer: cuts a normalised text into the pieces that the model encodes one by one.
//
// The steps are those of the tokenizer file, in order; each sees the pieces of the one before as
// texts of their own. Neighbours: regex.h runs the patterns, tokenizer.cc the pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"
#include "text/vocab_spec.h"

namespace lucid {

struct PieceRange {
  uint32_t begin = 0, end = 0;  // bytes of PreTokenized::text()
};

// Pieces of a text. The text is a copy only if a step had to change it.
class PreTokenized {
 public:
  explicit PreTokenized(std::string_view text) : view_(text) {
    if (!text.empty()) pieces.push_back({0, static_cast<uint32_t>(text.size())});
  }
  PreTokenized(const PreTokenized&) = delete;
  PreTokenized& operator=(const PreTokenized&) = delete;

  std::string_view text() const { return view_; }
  std::string_view At(const PieceRange& piece) const {
    return view_.substr(piece.begin, piece.end - piece.begin);
  }
  void Replace(std::string text) {
    owned_ = std::move(text);
    view_ = owned_;
  }

  std::vector<PieceRange> pieces;

 private:
  std::string_view view_;
  std::string owned_;
};

class PreTokenizer {
 public:
  // kInvalidFile with the reason for a pattern that is not valid.
  static Result<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps);

  // `at_start`: the text is the beginning of what the user gave (for Metaspace's scheme "first").
  void Apply(bool at_start, PreTokenized& text) const;
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    PreTokenizerStep spec;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

// The words of GPT-2, which ByteLevel steps with `use_regex` split by.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace lucid
