// Normalizer: the text changes a tokenizer file asks for before pre-tokenization.
//
// Neighbours: tokenizer.cc applies it to the text between added tokens; charsmap.h holds
// SentencePiece's table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/charsmap.h"
#include "text/regex.h"
#include "text/vocab_spec.h"

namespace lucid {

class Normalizer {
 public:
  // kInvalidFile naming the step: a pattern or character map that is not valid.
  static Result<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  std::string Apply(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<Regex> regex;
    std::optional<Charsmap> charsmap;
  };
  static std::string ApplyStep(const Step& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace lucid
