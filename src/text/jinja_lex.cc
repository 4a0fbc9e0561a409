// See jinja_lex.h. A hand-written scanner with one function per state of Jinja's lexer
// (jinja2/lexer.py documents the rules): data, comment, raw block, and code inside {% %} or {{ }}.
#include "text/jinja_lex.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

[[noreturn]] void SyntaxError(int line, std::string message) {
  throw TemplateError{ErrorKind::kSyntax, std::move(message), line};
}

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  return out;
}

bool IsOctal(char c) {
  return c >= '0' && c <= '7';
}
bool IsDigitChar(char c) {
  return c >= '0' && c <= '9';
}

int HexValue(char c) {
  if (IsDigitChar(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The escapes of a Python string literal, as the unicode-escape codec reads them.
class Unescaper {
 public:
  Unescaper(std::string_view body, int line) : body_(body), line_(line) {}

  std::string Run() {
    while (at_ < body_.size()) {
      if (body_[at_] != '\\' || at_ + 1 >= body_.size()) {
        out_.push_back(body_[at_++]);
      } else {
        ++at_;
        Escape(body_[at_]);
      }
    }
    return std::move(out_);
  }

 private:
  void Escape(char c) {
    constexpr std::string_view kFrom = "\\'\"abfnrtv";
    constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (size_t i = kFrom.find(c); i != std::string_view::npos) {
      out_.push_back(kTo[i]);
      ++at_;
    } else if (c == '\n') {
      ++at_;
    } else if (IsOctal(c)) {
      int32_t value = 0;
      for (int n = 0; n < 3 && at_ < body_.size() && IsOctal(body_[at_]); ++n, ++at_) {
        value = value * 8 + (body_[at_] - '0');
      }
      AppendCodePoint(&out_, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      Hex(c);
    } else if (c == 'N') {
      SyntaxError(line_, "character names (\\N) are not supported in strings");
    } else {
      Unknown();
    }
  }

  void Hex(char c) {
    int width = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    ++at_;
    int64_t value = 0;
    for (int n = 0; n < width; ++n, ++at_) {
      int digit = at_ < body_.size() ? HexValue(body_[at_]) : -1;
      if (digit < 0) SyntaxError(line_, fmt::format("truncated \\{} escape in a string", c));
      value = value * 16 + digit;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      SyntaxError(line_, "an escape in a string is not a Unicode character");
    }
    AppendCodePoint(&out_, static_cast<int32_t>(value));
  }

  // An unknown escape keeps its backslash. Jinja first writes non-ASCII characters as escapes of
  // their own, so that a backslash before one ends up in front of that escape's letters.
  void Unknown() {
    out_.push_back('\\');
    size_t n = 0;
    int32_t c = DecodeAt(body_, at_, &n);
    if (c < 0x80) {
      out_.append(body_.substr(at_, n));
    } else if (c < 0x100) {
      out_ += fmt::format("x{:02x}", c);
    } else if (c < 0x10000) {
      out_ += fmt::format("u{:04x}", c);
    } else {
      out_ += fmt::format("U{:08x}", c);
    }
    at_ += n;
  }

  std::string_view body_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(NormalizeNewlines(source)), src_(text_) {
    if (!src_.empty() && src_.back() == '\n') src_.remove_suffix(1);
  }

  std::vector<Token> Run() {
    while (at_ < src_.size()) LexData();
    Add(Tok::kEof, {});
    return std::move(tokens_);
  }

 private:
  void Add(Tok type, std::string_view text) {
    tokens_.push_back({type, line_, std::string(text), {}});
  }

  // Moves to `end`, counting lines and remembering whether the next text starts a line.
  void AdvanceTo(size_t end) {
    auto part = src_.substr(at_, end - at_);
    line_ += static_cast<int>(std::count(part.begin(), part.end(), '\n'));
    line_starting_ = !part.empty() && part.back() == '\n';
    at_ = end;
  }

  size_t SkipSpace(size_t at) const {
    for (size_t n = 0; at < src_.size(); at += n) {
      if (!IsSpace(DecodeAt(src_, at, &n))) break;
    }
    return at;
  }

  bool Has(size_t at, std::string_view what) const { return src_.substr(at, what.size()) == what; }

  // The end of a closing delimiter at `at` ("-%}" with the space after it, "+%}", "%}" with one
  // newline), or 0. `trim`: the newline is dropped.
  size_t MatchClose(size_t at, std::string_view close, bool plus, bool trim) const {
    if (Has(at, "-") && Has(at + 1, close)) return SkipSpace(at + 1 + close.size());
    if (plus && Has(at, "+") && Has(at + 1, close)) return at + 1 + close.size();
    if (!Has(at, close)) return 0;
    size_t end = at + close.size();
    return trim && Has(end, "\n") ? end + 1 : end;
  }

  // The data before a tag, after the tag's sign and lstrip_blocks have acted on it.
  std::string_view StripBefore(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return Strip(text, nullptr, false, true);
    if (sign == '+' || variable) return text;
    size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !line_starting_) return text;
    std::string_view tail = text.substr(line);
    return !tail.empty() && SkipTail(tail) ? text.substr(0, line) : text;
  }
  static bool SkipTail(std::string_view tail) { return Strip(tail, nullptr, true, true).empty(); }

  char SignAt(size_t at) const {
    return at < src_.size() && (src_[at] == '-' || src_[at] == '+') ? src_[at] : '\0';
  }

  void LexData() {
    size_t tag = at_;
    for (; tag + 1 < src_.size(); ++tag) {
      if (src_[tag] == '{' &&
          (src_[tag + 1] == '%' || src_[tag + 1] == '{' || src_[tag + 1] == '#')) {
        break;
      }
    }
    if (tag + 1 >= src_.size()) {
      if (at_ < src_.size()) Add(Tok::kData, src_.substr(at_));
      AdvanceTo(src_.size());
      return;
    }
    char type = src_[tag + 1];
    char sign = SignAt(tag + 2);
    std::string_view data = StripBefore(src_.substr(at_, tag - at_), sign, type == '{');
    if (!data.empty()) Add(Tok::kData, data);
    AdvanceTo(tag);
    size_t body = tag + 2 + (sign != '\0' ? 1 : 0);
    if (type == '#') return LexComment(body);
    if (type == '{') return LexCode(body, "}}", Tok::kVariableBegin, Tok::kVariableEnd);
    if (size_t raw = MatchRaw(body); raw != 0) return LexRaw(raw);
    LexCode(body, "%}", Tok::kBlockBegin, Tok::kBlockEnd);
  }

  void LexComment(size_t at) {
    for (; at < src_.size(); ++at) {
      if (size_t end = MatchClose(at, "#}", true, true); end != 0) return AdvanceTo(end);
    }
    SyntaxError(line_, "missing end of comment tag");
  }

  size_t MatchRaw(size_t at) const {
    at = SkipSpace(at);
    if (!Has(at, "raw")) return 0;
    return MatchClose(SkipSpace(at + 3), "%}", false, false);
  }

  void LexRaw(size_t begin) {
    AdvanceTo(begin);
    for (size_t at = begin; at < src_.size(); ++at) {
      if (!Has(at, "{%")) continue;
      char sign = SignAt(at + 2);
      size_t word = SkipSpace(at + 2 + (sign != '\0' ? 1 : 0));
      if (!Has(word, "endraw")) continue;
      size_t end = MatchClose(SkipSpace(word + 6), "%}", true, true);
      if (end == 0) continue;
      std::string_view data = StripBefore(src_.substr(begin, at - begin), sign, false);
      if (!data.empty()) Add(Tok::kData, data);
      return AdvanceTo(end);
    }
    SyntaxError(line_, "missing end of raw directive");
  }

  void LexCode(size_t begin, std::string_view close, Tok open_token, Tok close_token) {
    Add(open_token, src_.substr(at_, 2));
    AdvanceTo(begin);
    bool block = close_token == Tok::kBlockEnd;
    std::string brackets;  // the closing brackets still expected, innermost last
    while (at_ < src_.size()) {
      if (brackets.empty()) {
        if (size_t end = MatchClose(at_, close, block, block); end != 0) {
          Add(close_token, close);
          return AdvanceTo(end);
        }
      }
      if (size_t end = SkipSpace(at_); end != at_) {
        AdvanceTo(end);
      } else if (!LexNumber() && !LexName() && !LexString()) {
        LexOperator(&brackets);
      }
    }
    // The parser reports the open tag; it knows what it was looking for.
  }

  // Digits with single underscores between them, from `at`; `digits` gets them without the
  // underscores.
  size_t Digits(size_t at, std::string* digits, int base = 10) const {
    size_t end = at;
    while (end < src_.size()) {
      size_t digit = src_[end] == '_' && end > at ? end + 1 : end;
      int value = digit < src_.size() ? HexValue(src_[digit]) : -1;
      if (value < 0 || value >= base) break;
      digits->push_back(src_[digit]);
      end = digit + 1;
    }
    return end;
  }

  bool LexNumber() {
    if (!IsDigitChar(src_[at_])) return false;
    if (LexFloat()) return true;
    std::string digits;
    size_t end = at_;
    int base = 10;
    if (src_[at_] == '0') {
      char kind = at_ + 1 < src_.size() ? static_cast<char>(src_[at_ + 1] | 32) : '\0';
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      size_t first = at_ + 2;
      if (base != 10 && Has(first, "_")) ++first;
      if (base != 10) end = Digits(first, &digits, base);
      if (digits.empty()) {  // zeros only: 0, 00, 0_0
        base = 10;
        for (end = at_ + 1; Has(end, "0") || Has(end, "_0");) end += Has(end, "_") ? 2 : 1;
        digits = "0";
      }
    } else {
      end = Digits(at_, &digits);
    }
    Int value = 0;
    for (char c : digits) {
      if (value > kIntLimit / 32) SyntaxError(line_, "an integer is too large");
      value = value * base + HexValue(c);
    }
    Add(Tok::kInteger, src_.substr(at_, end - at_));
    tokens_.back().number = Value::OfInt(value);
    AdvanceTo(end);
    return true;
  }

  bool LexFloat() {
    if (at_ > 0 && src_[at_ - 1] == '.') return false;
    std::string digits;
    size_t end = Digits(at_, &digits);
    bool is_float = false;
    if (Has(end, ".") && end + 1 < src_.size() && IsDigitChar(src_[end + 1])) {
      digits.push_back('.');
      end = Digits(end + 1, &digits);
      is_float = true;
    }
    if (Has(end, "e") || Has(end, "E")) {
      size_t exponent = end + 1;
      std::string sign;
      if (Has(exponent, "+") || Has(exponent, "-")) sign = src_[exponent++];
      if (exponent < src_.size() && IsDigitChar(src_[exponent])) {
        digits += "e" + sign;
        end = Digits(exponent, &digits);
        is_float = true;
      }
    }
    if (!is_float) return false;
    Add(Tok::kFloat, src_.substr(at_, end - at_));
    tokens_.back().number = Value::Float(ParseDouble(digits));
    AdvanceTo(end);
    return true;
  }

  static double ParseDouble(const std::string& digits) {
    double value = 0;
    auto [ptr, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // Beyond the range of double: from_chars leaves it to the caller; the sign of the exponent
    // decides.
    if (error == std::errc::result_out_of_range) {
      return digits.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
    }
    return value;
  }

  bool LexName() {
    size_t end = at_;
    for (size_t n = 0; end < src_.size(); end += n) {
      if (!IsIdentifierChar(DecodeAt(src_, end, &n))) break;
    }
    if (end == at_) return false;
    size_t n = 0;
    int32_t first = DecodeAt(src_, at_, &n);
    if (first != '_' && !IsAlpha(first)) SyntaxError(line_, "invalid character in identifier");
    Add(Tok::kName, src_.substr(at_, end - at_));
    AdvanceTo(end);
    return true;
  }

  bool LexString() {
    char quote = src_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < src_.size() && src_[end] != quote) end += src_[end] == '\\' ? 2 : 1;
    if (end >= src_.size()) return false;
    Add(Tok::kString, {});
    tokens_.back().text = Unescaper(src_.substr(at_ + 1, end - at_ - 1), line_).Run();
    AdvanceTo(end + 1);
    return true;
  }

  void LexOperator(std::string* brackets) {
    constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    for (std::string_view pair : kPairs) {
      if (Has(at_, pair)) {
        Add(Tok::kOperator, pair);
        return AdvanceTo(at_ + 2);
      }
    }
    char c = src_[at_];
    if (kSingles.find(c) == std::string_view::npos) {
      size_t n = 0;
      DecodeAt(src_, at_, &n);
      SyntaxError(line_, fmt::format("unexpected char '{}'", src_.substr(at_, n)));
    }
    if (c == '(') brackets->push_back(')');
    if (c == '[') brackets->push_back(']');
    if (c == '{') brackets->push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty()) SyntaxError(line_, fmt::format("unexpected '{}'", c));
      if (brackets->back() != c) {
        SyntaxError(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets->back()));
      }
      brackets->pop_back();
    }
    Add(Tok::kOperator, std::string_view(&c, 1));
    AdvanceTo(at_ + 1);
  }

  std::string text_;
  std::string_view src_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) {
  if (!IsValidUtf8(source)) SyntaxError(1, "the template is not valid UTF-8 text");
  return Lexer(source).Run();
}

}  // namespace lucid::jinja
