// Regex: the split patterns of tokenizer files, which are written for Oniguruma, run by PCRE2.
//
// Regex::Compile translates what the two spell differently; Subject prepares a text once for any
// number of searches. Neighbours: pretokenize.h and normalizer.h use it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lucid {

// A copy of the text in which each invalid byte is a control character, and each character that
// PCRE2's older Unicode tables do not class as Oniguruma does is one of the same class and length.
// Offsets are those of the text.
class Subject {
 public:
  explicit Subject(std::string_view text);
  std::string_view text() const { return owned_.empty() ? text_ : std::string_view(owned_); }

 private:
  std::string_view text_;
  std::string owned_;
};

struct Match {
  size_t begin = 0, end = 0;
};

class Regex {
 public:
  // kInvalidFile with PCRE2's reason if the pattern is not valid. Linear in the pattern.
  static Result<Regex> Compile(std::string_view pattern);

  // Calls found(Match) for every match in subject[begin, end), in order, where that part is seen as
  // a whole text. A search that exceeds its bounded work ends the list.
  class Matcher;

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The state of one thread's searches with one Regex.
class Regex::Matcher {
 public:
  explicit Matcher(const Regex& regex);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // The first match at or after `from` in `part`; false if there is none.
  bool Next(std::string_view part, size_t from, Match* match);

 private:
  const Impl& regex_;
  void* data_;
};

// The translation alone, for tests.
std::string OnigurumaToPcre(std::string_view pattern);

}  // namespace lucid
