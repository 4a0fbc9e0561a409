// Python's two ways to format text: `str % values` and str.format (jinja_methods.h). Both come down
// to one FormatSpec per value, which is Python's format mini-language.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

// Wider fields and more digits than this are refused rather than built.
constexpr int kMaxWidth = 100'000;
constexpr int kMaxPrecision = 400;

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false, zero = false;
  char grouping = '\0';
  int width = 0, precision = -1;
  char type = '\0';
};

[[noreturn]] void BadSpec(const Value& value) {
  Fail(ErrorKind::kValue, "invalid format specifier for object of type '{}'", TypeName(value));
}

std::string Digits(Int value, int base, bool upper) {
  std::string out;
  if (value < 0) value = -value;
  do {
    auto digit = static_cast<int>(value % base);
    out.push_back(static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10));
    value /= base;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string Printf(double value, char type, int precision, bool alternate) {
  char format[8] = {'%', '.', '*', type, '\0'};
  if (alternate) std::snprintf(format, sizeof format, "%%#.*%c", type);
  char buffer[800];  // 310 digits before the point and kMaxPrecision after it
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  int n = std::snprintf(buffer, sizeof buffer, format, precision, value);
#pragma GCC diagnostic pop
  return std::string(buffer, static_cast<size_t>(std::clamp(n, 0, 799)));
}

std::string StripZeros(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

// A float with `precision` significant digits and no type: like 'g', but never looking like an
// integer.
std::string ShortFloat(double f, int precision) {
  std::string text = Printf(f, 'e', precision - 1, false);
  size_t e = text.find('e');
  int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= precision - 1)
    return StripZeros(text.substr(0, e)) + text.substr(e);
  text = StripZeros(Printf(f, 'f', precision - 1 - exponent, false));
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

// The magnitude of a number without its sign.
std::string Magnitude(const Value& value, const FormatSpec& spec) {
  char type = spec.type;
  if (value.IsIntegral() &&
      (type == '\0' || std::string_view("dnxXob").find(type) != std::string::npos)) {
    if (spec.precision >= 0) Fail(ErrorKind::kValue, "precision not allowed in integer format");
    int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    return Digits(value.int_value(), base, type == 'X');
  }
  double f = std::fabs(value.AsDouble());
  bool upper = type == 'F' || type == 'E' || type == 'G';
  if (!std::isfinite(f)) {
    std::string text = std::isnan(f) ? "nan" : "inf";
    return upper ? Upper(text) : text;
  }
  if (type == '%')
    return Printf(f * 100, 'f', spec.precision < 0 ? 6 : spec.precision, false) + "%";
  if (type != '\0') {
    return Printf(f, type == 'n' ? 'g' : type, spec.precision < 0 ? 6 : spec.precision,
                  spec.alternate);
  }
  if (spec.precision < 0) return FloatRepr(f);
  return ShortFloat(f, std::max(spec.precision, 1));
}

std::string Group(const std::string& digits, char separator, size_t every) {
  size_t whole = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (whole == std::string::npos) whole = digits.size();
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i != 0 && (whole - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

std::string Padded(const std::string& head, const std::string& body, const FormatSpec& spec,
                   char default_align) {
  size_t length = CountCodePoints(head) + CountCodePoints(body);
  auto width = static_cast<size_t>(spec.width);
  if (length >= width) return head + body;
  size_t missing = width - length;
  char align = spec.align != '\0' ? spec.align : default_align;
  auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  if (align == '=') return head + fill(missing) + body;
  if (align == '<') return head + body + fill(missing);
  if (align == '^') return fill(missing / 2) + head + body + fill(missing - missing / 2);
  return fill(missing) + head + body;
}

std::string FormatNumber(const Value& value, FormatSpec spec) {
  bool negative = value.is(Kind::kFloat)
                      ? std::signbit(value.AsDouble()) && !std::isnan(value.AsDouble())
                      : value.int_value() < 0;
  std::string head = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  if (spec.alternate && value.IsIntegral()) {
    if (spec.type == 'x') head += "0x";
    if (spec.type == 'X') head += "0X";
    if (spec.type == 'o') head += "0o";
    if (spec.type == 'b') head += "0b";
  }
  std::string body = Magnitude(value, spec);
  if (spec.grouping != '\0') {
    bool by_four =
        value.IsIntegral() && std::string_view("xXob").find(spec.type) != std::string::npos;
    body = Group(body, spec.grouping, by_four && spec.type != '\0' ? 4 : 3);
  }
  if (spec.zero && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  return Padded(head, body, spec, '>');
}

std::string FormatText(const Value& value, const std::string& text, FormatSpec spec) {
  if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
      spec.grouping != '\0' || spec.alternate) {
    BadSpec(value);
  }
  if (spec.zero && spec.align == '\0') spec.fill = "0";
  std::string cut = text;
  if (spec.precision >= 0)
    cut = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
  return Padded({}, cut, spec, '<');
}

int ReadInt(std::string_view text, size_t* at, int most) {
  int value = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    value = value * 10 + (text[*at] - '0');
    if (value > most)
      Fail(ErrorKind::kLimit, "a width or precision above {} is not supported", most);
  }
  return value;
}

FormatSpec ParseSpec(std::string_view text, const Value& value) {
  FormatSpec spec;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t at = 0;
  size_t fill = 0;
  if (!text.empty()) DecodeAt(text, 0, &fill);
  if (fill < text.size() && fill > 0 && is_align(text[fill])) {
    spec.fill = text.substr(0, fill);
    spec.align = text[fill];
    at = fill + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  auto take = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' '))
    spec.sign = text[at++];
  spec.alternate = take('#');
  spec.zero = take('0');
  spec.width = ReadInt(text, &at, kMaxWidth);
  if (take(',')) spec.grouping = ',';
  if (take('_')) spec.grouping = '_';
  if (take('.')) {
    size_t before = at;
    spec.precision = ReadInt(text, &at, value.IsString() ? kMaxWidth : kMaxPrecision);
    if (at == before) Fail(ErrorKind::kValue, "format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) BadSpec(value);
  return spec;
}

// The character with this code point.
std::string CharacterOf(const Value& value) {
  Int c = value.int_value();
  if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
    Fail(ErrorKind::kValue, "a number in a character format is no Unicode character");
  }
  std::string text;
  AppendCodePoint(&text, static_cast<int32_t>(c));
  return text;
}

std::string FormatValue(Interp& interp, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return Str(value, interp.budget());
  FormatSpec spec = ParseSpec(spec_text, value);
  interp.budget().Bytes(static_cast<uint64_t>(spec.width) * 4 + 800);
  if (value.IsString()) return FormatText(value, value.text(), spec);
  if (!value.IsNumber()) {
    Fail(ErrorKind::kType, "unsupported format string passed to {}.__format__", TypeName(value));
  }
  if (value.is(Kind::kBool) && spec.type == '\0') {
    return FormatNumber(Value::OfInt(value.int_value()), spec);
  }
  if (spec.type == 'c' && value.IsIntegral()) {
    return Padded({}, CharacterOf(value), spec, '<');
  }
  std::string_view known = value.is(Kind::kFloat) ? "eEfFgGn%" : "dnxXobeEfFgG%";
  if (spec.type != '\0' && known.find(spec.type) == std::string_view::npos) {
    Fail(ErrorKind::kValue, "Unknown format code '{}' for object of type '{}'", spec.type,
         TypeName(value));
  }
  return FormatNumber(value, spec);
}

// The replacement fields of str.format.
class Formatter {
 public:
  Formatter(Interp& interp, const CallArgs& args) : interp_(interp), args_(args) {}

  std::string Run(std::string_view format, int nesting = 0) {
    if (nesting > 1) Fail(ErrorKind::kValue, "Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      char c = format[at];
      if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
        out.push_back(c);
        at += 2;
      } else if (c == '{') {
        out += Field(format, &at, nesting);
        interp_.budget().Bytes(out.size());
      } else if (c == '}') {
        Fail(ErrorKind::kValue, "Single '}}' encountered in format string");
      } else {
        out.push_back(c);
        ++at;
      }
    }
    return out;
  }

 private:
  // {name!conversion:spec} with `at` on the brace; leaves `at` behind the closing one.
  std::string Field(std::string_view format, size_t* at, int nesting) {
    size_t begin = *at + 1;
    size_t end = begin;
    for (int open = 1; end < format.size(); ++end) {
      if (format[end] == '{') ++open;
      if (format[end] == '}' && --open == 0) break;
    }
    if (end >= format.size()) Fail(ErrorKind::kValue, "expected '}}' before end of string");
    *at = end + 1;
    std::string_view body = format.substr(begin, end - begin);
    size_t name_end = 0;
    for (int square = 0; name_end < body.size(); ++name_end) {
      if (body[name_end] == '[') ++square;
      if (body[name_end] == ']') --square;
      if (square <= 0 && (body[name_end] == '!' || body[name_end] == ':')) break;
    }
    std::string_view name = body.substr(0, name_end);
    std::string_view rest = body.substr(name_end);
    Value value = Lookup(name);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        Fail(ErrorKind::kValue, "expected ':' after conversion specifier");
      }
      value = Convert(value, rest[1]);
      rest.remove_prefix(2);
    }
    std::string spec;
    if (!rest.empty()) spec = Run(rest.substr(1), nesting + 1);
    return FormatValue(interp_, value, spec);
  }

  Value Convert(const Value& value, char how) {
    switch (how) {
      case 's':
        return interp_.MakeString(Str(value, interp_.budget()));
      case 'r':
        return interp_.MakeString(Repr(value, interp_.budget()));
      case 'a':
        return interp_.MakeString(QuotedIfText(value));
      default:
        Fail(ErrorKind::kValue, "Unknown conversion specifier {}", how);
    }
  }

  std::string QuotedIfText(const Value& value) {
    return value.IsString() ? QuotedRepr(value.text(), true) : Repr(value, interp_.budget());
  }

  static bool AllDigits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value Lookup(std::string_view name) {
    size_t first_end = std::min(name.find_first_of(".["), name.size());
    std::string_view first = name.substr(0, first_end);
    Value value = Argument(first);
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) Fail(ErrorKind::kValue, "Empty attribute in format string");
        value = interp_.GetAttr(value, std::string(rest.substr(1, end - 1)));
        rest.remove_prefix(end);
        continue;
      }
      size_t close = rest.find(']');
      if (rest[0] != '[' || close == std::string_view::npos || close == 1) {
        Fail(ErrorKind::kValue, "Empty attribute in format string");
      }
      std::string key(rest.substr(1, close - 1));
      value =
          interp_.GetItem(value, AllDigits(key) && key.size() < 10 ? Value::OfInt(std::stoi(key))
                                                                   : Value::String(key));
      rest.remove_prefix(close + 1);
    }
    return value;
  }

  Value Argument(std::string_view first) {
    if (first.empty() || AllDigits(first)) {
      bool automatic = first.empty();
      if (numbering_ != Numbering::kNone && automatic != (numbering_ == Numbering::kAutomatic)) {
        Fail(ErrorKind::kValue, "cannot switch between manual and automatic field numbering");
      }
      numbering_ = automatic ? Numbering::kAutomatic : Numbering::kManual;
      size_t at = automatic          ? next_++
                  : first.size() < 8 ? std::stoul(std::string(first))
                                     : SIZE_MAX;
      if (at >= args_.pos.size()) {
        Fail(ErrorKind::kValue, "Replacement index {} out of range for positional args tuple", at);
      }
      return args_.pos[at];
    }
    for (const auto& [key, value] : args_.kw) {
      if (key == first) return value;
    }
    Fail(ErrorKind::kValue, "no argument '{}' for the format string", first);
  }

  enum class Numbering : uint8_t { kNone, kAutomatic, kManual };
  Interp& interp_;
  const CallArgs& args_;
  Numbering numbering_ = Numbering::kNone;
  size_t next_ = 0;
};

// The conversions of `format % values`.
class Percent {
 public:
  Percent(Interp& interp, const Value& format, const Value& values)
      : interp_(interp), markup_(format.str().markup), text_(format.text()), values_(values) {
    if (!values.is(Kind::kTuple)) {
      single_ = {values};
      items_ = &single_;
    } else {
      items_ = &values.items();
    }
  }

  std::string Run() {
    std::string out;
    while (at_ < text_.size()) {
      if (text_[at_] != '%') {
        out.push_back(text_[at_++]);
        continue;
      }
      ++at_;
      interp_.budget().Step();
      std::string piece = Conversion();
      interp_.budget().Bytes(piece.size());
      out += piece;
    }
    // What Python takes for a mapping may go unused.
    bool mapping = values_.is(Kind::kDict) || values_.is(Kind::kList) || values_.is(Kind::kRange) ||
                   values_.IsUndefined();
    if (used_ < items_->size() && !mapping) {
      Fail(ErrorKind::kType, "not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  const Value& NextValue() {
    if (used_ >= items_->size()) Fail(ErrorKind::kType, "not enough arguments for format string");
    return (*items_)[used_++];
  }

  int Star(bool width, FormatSpec* spec) {
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      const Value& value = NextValue();
      if (!value.IsIntegral()) Fail(ErrorKind::kType, "* wants int");
      Int n = value.int_value();
      if (n < 0 && width) {
        spec->align = '<';
        n = -n;
      }
      int most = width ? kMaxWidth : kMaxPrecision;
      if (n > most) Fail(ErrorKind::kLimit, "a width or precision above {} is not supported", most);
      return n < 0 ? 0 : static_cast<int>(n);
    }
    return ReadInt(text_, &at_, width ? kMaxWidth : kMaxPrecision);
  }

  std::string Conversion() {
    Value value;
    bool keyed = at_ < text_.size() && text_[at_] == '(';
    if (keyed) value = Keyed();
    FormatSpec spec;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == '-')
        spec.align = '<';
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        spec.zero = true;
      else
        break;
    }
    spec.width = Star(true, &spec);
    interp_.budget().Bytes(static_cast<uint64_t>(spec.width));
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      spec.precision = Star(false, &spec);
    }
    while (at_ < text_.size() && (text_[at_] == 'l' || text_[at_] == 'h' || text_[at_] == 'L'))
      ++at_;
    if (at_ >= text_.size()) Fail(ErrorKind::kValue, "incomplete format");
    char type = text_[at_++];
    if (type == '%') return "%";
    if (!keyed) value = NextValue();
    return Convert(value, type, spec);
  }

  Value Keyed() {
    size_t begin = ++at_;
    for (int open = 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '(') ++open;
      if (text_[at_] == ')' && --open == 0) break;
    }
    if (at_ >= text_.size()) Fail(ErrorKind::kValue, "incomplete format key");
    std::string key(text_.substr(begin, at_++ - begin));
    if (!values_.is(Kind::kDict)) Fail(ErrorKind::kType, "format requires a mapping");
    const Value* value = values_.dict().Find(key);
    if (value == nullptr) Fail(ErrorKind::kValue, "the mapping of a format has no key '{}'", key);
    return *value;
  }

  std::string Convert(const Value& value, char type, FormatSpec spec) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = type == 's'                       ? Str(value, interp_.budget())
                           : type == 'a' && value.IsString() ? QuotedRepr(value.text(), true)
                                                             : Repr(value, interp_.budget());
        if (markup_ && !(value.IsString() && value.str().markup)) text = EscapeHtml(text);
        if (spec.precision >= 0) {
          text = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
        }
        return Padded({}, text, spec, '>');
      }
      case 'c':
        return Padded({}, Character(value), spec, '>');
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return Integer(value, type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value.IsUndefined()) FailUndefined(value);
        if (!value.IsNumber())
          Fail(ErrorKind::kType, "must be real number, not {}", TypeName(value));
        spec.type = type;
        FixZero(&spec);
        return FormatNumber(Value::Float(value.AsDouble()), spec);
      }
      default:
        Fail(ErrorKind::kValue, "unsupported format character '{}'", type);
    }
  }

  static void FixZero(FormatSpec* spec) {
    if (spec->align == '<') spec->zero = false;
  }

  std::string Integer(const Value& value, char type, FormatSpec spec) {
    if (value.IsUndefined()) FailUndefined(value);
    bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.IsNumber() || (!decimal && !value.IsIntegral())) {
      Fail(ErrorKind::kType, "%{} format: a number is required, not {}", type, TypeName(value));
    }
    double f = value.AsDouble();
    if (value.is(Kind::kFloat) && !(std::fabs(f) < 8e37)) {
      Fail(ErrorKind::kValue, "cannot convert the float to an integer");
    }
    Int number = value.IsIntegral() ? value.int_value() : static_cast<Int>(f);
    std::string head = number < 0 ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
    if (spec.alternate && !decimal) head += type == 'o' ? "0o" : type == 'x' ? "0x" : "0X";
    std::string body = Digits(number, type == 'o' ? 8 : decimal ? 10 : 16, type == 'X');
    if (spec.precision > static_cast<int>(body.size())) {
      body.insert(0, static_cast<size_t>(spec.precision) - body.size(), '0');
    }
    FixZero(&spec);
    if (spec.zero) {
      spec.fill = "0";
      spec.align = '=';
    }
    return Padded(head, body, spec, '>');
  }

  static std::string Character(const Value& value) {
    if (value.IsString() && value.str().code_points == 1) return value.text();
    if (!value.IsIntegral()) Fail(ErrorKind::kType, "%c requires int or char");
    return CharacterOf(value);
  }

  Interp& interp_;
  bool markup_;
  std::string_view text_;
  const Value& values_;
  std::vector<Value> single_;
  const std::vector<Value>* items_;
  size_t at_ = 0, used_ = 0;
};

}  // namespace

Value PercentFormat(Interp& interp, const Value& format, const Value& values) {
  return interp.MakeString(Percent(interp, format, values).Run(), format.str().markup);
}

Value FormatMethod(Interp& interp, const Value& self, CallArgs& args) {
  return interp.MakeString(Formatter(interp, args).Run(self.text()), self.str().markup);
}

}  // namespace lucid::jinja
