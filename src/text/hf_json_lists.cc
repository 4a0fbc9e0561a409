#include "text/hf_json_lists.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/unicode.h"

namespace lucid {
namespace {

// Every function returns false where the text is not what it wants; nothing is tried twice.
class Scanner {
 public:
  Scanner(std::string_view json, HfTokenizerJson& out) : in_(json), out_(out) {
    // An entry takes some 20 bytes of a file, and half of them go to merges.
    out_.vocab.reserve(json.size() / 64);
    out_.merges.reserve(json.size() / 64);
  }

  bool Run(std::string& rest) {
    const bool whole = Members([this](std::string_view key) {
      if (key != "model" || Peek() != '{') return SkipValue();
      if (std::exchange(in_model_, true)) return false;  // a second one
      return Members([this](std::string_view name) { return ModelMember(name); });
    });
    if (!whole || !took_vocab_) return false;
    rest = std::move(rest_);
    rest += in_.substr(copied_);
    return true;
  }

 private:
  bool ModelMember(std::string_view name) {
    const size_t begin = at_;
    if (name == "vocab" && Peek() == '{') {
      if (std::exchange(took_vocab_, true) || !Vocab()) return false;
    } else if (name == "merges" && Peek() == '[') {
      if (std::exchange(took_merges_, true) || !Merges()) return false;
    } else {
      return SkipValue();
    }
    rest_ += in_.substr(copied_, begin - copied_);
    rest_ += "null";
    copied_ = at_;
    return true;
  }

  char Peek() const { return at_ < in_.size() ? in_[at_] : '\0'; }
  void SkipSpace() {
    while (at_ < in_.size() &&
           (in_[at_] == ' ' || in_[at_] == '\n' || in_[at_] == '\t' || in_[at_] == '\r'))
      ++at_;
  }
  // The next character that is no space, which must be `c`.
  bool Take(char c) {
    SkipSpace();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  // Calls member(key) for each member of an object, with its value next; it takes the value.
  template <typename Member>
  bool Members(const Member& member) {
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      SkipSpace();
      const auto key = String(key_);
      if (!key || !Take(':')) return false;
      SkipSpace();
      if (!member(*key)) return false;
    } while (Take(','));
    return Take('}');
  }

  // The string that begins here: a view of the text, or of `decoded` where it has escapes.
  std::optional<std::string_view> String(std::string& decoded) {
    if (Peek() != '"') return std::nullopt;
    const size_t begin = ++at_;
    bool plain = true;
    size_t copied = begin;
    decoded.clear();
    while (at_ < in_.size()) {
      const auto c = static_cast<unsigned char>(in_[at_]);
      if (c == '"') {
        const std::string_view tail = in_.substr(copied, at_++ - copied);
        if (plain) return tail;
        decoded += tail;
        return decoded;
      }
      if (c == '\\') {
        plain = false;
        decoded += in_.substr(copied, at_ - copied);
        if (!Escape(decoded)) return std::nullopt;
        copied = at_;
      } else if (c < 0x20) {
        return std::nullopt;
      } else if (c < 0x80) {
        ++at_;
      } else {
        const Utf8Char one = DecodeUtf8(in_, at_);
        if (one.code < 0) return std::nullopt;
        at_ += one.length;
      }
    }
    return std::nullopt;
  }

  bool Escape(std::string& decoded) {
    ++at_;
    const char c = Peek();
    ++at_;
    constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    const size_t found = kNames.find(c);
    if (found != std::string_view::npos) {
      decoded.push_back(kValues[found]);
      return true;
    }
    if (c != 'u') return false;
    int32_t code = Hex4();
    if (code >= 0xD800 && code <= 0xDBFF && in_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const int32_t low = Hex4();
      if (low < 0xDC00 || low > 0xDFFF) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code < 0 || (code >= 0xD800 && code <= 0xDFFF)) return false;
    AppendUtf8(code, decoded);
    return true;
  }

  // Four hexadecimal digits, or -1.
  int32_t Hex4() {
    int32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return -1;
      code = code * 16 + digit;
    }
    return code;
  }

  bool Vocab() {
    return Members([this](std::string_view piece) {
      const size_t begin = at_;
      int64_t id = 0;
      while (Peek() >= '0' && Peek() <= '9' && at_ - begin < 10) id = id * 10 + (in_[at_++] - '0');
      const size_t digits = at_ - begin;
      if (digits == 0 || digits == 10 || (digits > 1 && in_[begin] == '0')) return false;
      SkipSpace();
      if (Peek() != ',' && Peek() != '}') return false;
      out_.vocab.emplace_back(piece, id);
      return true;
    });
  }

  // ["a b", ...] or [["a", "b"], ...]
  bool Merges() {
    if (!Take('[')) return false;
    if (Take(']')) return true;
    do {
      if (!Merge()) return false;
    } while (Take(','));
    return Take(']');
  }

  bool Merge() {
    if (Take('[')) {
      SkipSpace();
      const auto left = String(left_);
      if (!left || !Take(',')) return false;
      SkipSpace();
      const auto right = String(right_);
      if (!right || !Take(']')) return false;
      out_.merges.emplace_back(*left, *right);
      return true;
    }
    const auto line = String(left_);
    if (!line) return false;
    const size_t space = line->find(' ');
    if (space == std::string_view::npos || line->find(' ', space + 1) != std::string_view::npos)
      return false;
    out_.merges.emplace_back(line->substr(0, space), line->substr(space + 1));
    return true;
  }

  // Past a value, whose inside is for another reader: strings end where they end, brackets are
  // counted.
  bool SkipValue() {
    int64_t depth = 0;
    do {
      SkipSpace();
      const char c = Peek();
      if (c == '"') {
        if (!SkipString()) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth-- == 0) return false;
        ++at_;
      } else if (c == '\0') {
        return false;
      } else if (depth > 0) {
        ++at_;
      } else {
        at_ = std::min(in_.find_first_of(",}] \n\t\r", at_), in_.size());
      }
    } while (depth > 0);
    return true;
  }

  bool SkipString() {
    for (++at_; at_ < in_.size(); ++at_) {
      if (in_[at_] == '\\') {
        ++at_;
      } else if (in_[at_] == '"') {
        ++at_;
        return true;
      }
    }
    return false;
  }

  std::string_view in_;
  HfTokenizerJson& out_;
  size_t at_ = 0;
  std::string rest_;
  size_t copied_ = 0;  // of in_, into rest_
  bool in_model_ = false, took_vocab_ = false, took_merges_ = false;
  std::string key_, left_, right_;  // decoded strings
};

}  // namespace

bool TakeModelLists(std::string_view json, HfTokenizerJson& out, std::string& rest) {
  return Scanner(json, out).Run(rest);
}

}  // namespace lucid
