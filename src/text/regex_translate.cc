// OnigurumaToPcre: the spelling differences between the two, rewritten. Declared in regex.h.
//
// Known differences: `\h` is a hex digit, `\w` is wider, `\uHHHH`, `{n,m}+` repeats instead of
// being possessive, property names of scripts, and nested or intersected classes.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/regex.h"

namespace lucid {
namespace {

// The members of `\w` in Oniguruma's Unicode syntax: Alphabetic, marks, decimal numbers,
// connectors.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr int kMaxClassDepth = 16;

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kLongNames = {{
    {"Letter", "L"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Punct", "P"},
    {"Digit", "Nd"},
    {"Lower", "Ll"},
    {"Upper", "Lu"},
    {"Alpha", "Alphabetic"},
}};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string Run() {
    while (at_ < in_.size()) Step();
    return std::move(out_);
  }

 private:
  void Step() {
    const char c = in_[at_];
    if (c == '\\') {
      atom_ = out_.size();
      out_ += Escape();
    } else if (c == '[') {
      atom_ = out_.size();
      out_ += Class(0);
    } else if (c == '(') {
      groups_.push_back(out_.size());
      out_ += c;
      ++at_;
    } else if (c == ')') {
      out_ += c;
      ++at_;
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
    } else if (c == '{' && Interval()) {
      return;
    } else {
      const bool is_operator = c == '*' || c == '+' || c == '?' || c == '|';
      // A character of several bytes is one atom.
      if (!is_operator && (static_cast<unsigned char>(c) & 0xC0) != 0x80) atom_ = out_.size();
      out_ += c;
      ++at_;
    }
  }

  // `{n,m}` with a following `+`: (?:X{n,m})+. False if this brace opens no interval.
  bool Interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    if (end >= in_.size() || in_[end] != '}' || end == at_ + 1) return false;
    const bool open = in_[at_ + 1] == ',';  // {,n} means {0,n}
    out_ += open ? "{0" : "{";
    out_ += in_.substr(at_ + 1, end - at_);
    at_ = end + 1;
    if (at_ < in_.size() && in_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
    return true;
  }

  // The escape at at_, as it reads outside a class.
  std::string Escape() {
    const char next = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (next == 'w' || next == 'W') {
      at_ += 2;
      return (next == 'w' ? "[" : "[^") + std::string(kWord) + "]";
    }
    if (next == 'h' || next == 'H') {
      at_ += 2;
      return next == 'h' ? "[0-9A-Fa-f]" : "[^0-9A-Fa-f]";
    }
    return CommonEscape();
  }

  // Escapes that read alike inside and outside a class.
  std::string CommonEscape() {
    const char next = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (next == 'u' && at_ + 6 <= in_.size()) {
      std::string code = "\\x{" + std::string(in_.substr(at_ + 2, 4)) + "}";
      at_ += 6;
      return code;
    }
    if ((next == 'p' || next == 'P') && at_ + 2 < in_.size() && in_[at_ + 2] == '{') {
      const size_t close = in_.find('}', at_);
      if (close != std::string_view::npos) {
        const std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
        at_ = close + 1;
        return std::string("\\") + next + "{" + Property(name) + "}";
      }
    }
    size_t length = 2;  // the backslash and one whole character
    while (at_ + length < in_.size() &&
           (static_cast<unsigned char>(in_[at_ + length]) & 0xC0) == 0x80)
      ++length;
    std::string copy(in_.substr(at_, length));
    at_ = std::min(in_.size(), at_ + length);
    return copy;
  }

  static std::string Property(std::string_view name) {
    std::string negation;
    if (!name.empty() && name.front() == '^') {
      negation = "^";
      name.remove_prefix(1);
    }
    for (const auto& [long_name, short_name] : kLongNames) {
      if (name == long_name) return negation + std::string(short_name);
    }
    const bool plain = name.size() <= 2 || name == "Any" || name == "Alphabetic" ||
                       name.find_first_of(":=") != name.npos;
    return negation + (plain ? "" : "sc:") + std::string(name);
  }

  // The class that opens at at_. Nested classes and `&&` become alternation and look-ahead.
  std::string Class(int depth) {
    ++at_;  // [
    const bool negated = at_ < in_.size() && in_[at_] == '^';
    if (negated) ++at_;
    std::vector<std::string> operands;
    std::string items;
    std::vector<std::string> nested;
    bool closed = false;
    bool first = true;
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == ']' && !first) {
        ++at_;
        closed = true;
        break;
      }
      first = false;
      if (c == '[' && at_ + 1 < in_.size() && in_[at_ + 1] == ':') {
        const size_t close = in_.find(":]", at_ + 2);
        if (close != std::string_view::npos) {
          items += in_.substr(at_, close + 2 - at_);
          at_ = close + 2;
          continue;
        }
      }
      if (c == '[' && depth < kMaxClassDepth) {
        nested.push_back(Class(depth + 1));
      } else if (c == '&' && in_.substr(at_, 2) == "&&") {
        operands.push_back(Union(items, nested));
        items.clear();
        nested.clear();
        at_ += 2;
      } else if (c == '\\') {
        ClassEscape(items, nested);
      } else {
        items += c;
        ++at_;
      }
    }
    if (!closed) return "[" + items;  // PCRE2 reports it
    if (operands.empty() && nested.empty()) return (negated ? "[^" : "[") + items + "]";
    operands.push_back(Union(items, nested));
    std::string all;
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + operands[i] + ")";
    all += operands.back();
    return negated ? "(?:(?!" + all + ")[\\x{0}-\\x{10FFFF}])" : "(?:" + all + ")";
  }

  void ClassEscape(std::string& items, std::vector<std::string>& nested) {
    const char next = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (next == 'w' || next == 'h') {
      items += next == 'w' ? kWord : std::string_view("0-9A-Fa-f");
      at_ += 2;
    } else if (next == 'W' || next == 'H') {
      nested.push_back(Escape());
    } else {
      items += CommonEscape();
    }
  }

  static std::string Union(const std::string& items, const std::vector<std::string>& nested) {
    std::string all = items.empty() ? "" : "[" + items + "]";
    for (const std::string& one : nested) all += (all.empty() ? "" : "|") + one;
    return "(?:" + all + ")";
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom starts in out_
  std::vector<size_t> groups_;  // where the open groups start in out_
};

}  // namespace

std::string OnigurumaToPcre(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace lucid
