// Methods of str (jinja_methods.h). Each row follows the Python method of its name.
#include <algorithm>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

using CharTest = bool (*)(int32_t);

Value Same(Interp& interp, const Value& self, std::string text) {
  return interp.MakeString(std::move(text), self.str().markup);
}

template <std::string (*kMap)(std::string_view)>
Value Mapped(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "str method", {});
  interp.budget().Bytes(self.text().size() * 5);  // the code points on the way
  return Same(interp, self, kMap(self.text()));
}

template <bool kLeft, bool kRight>
Value Stripped(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "strip", {"chars"});
  if (params[0] == nullptr || params[0]->is(Kind::kNone)) {
    return Same(interp, self, std::string(Strip(self.text(), nullptr, kLeft, kRight)));
  }
  std::string_view chars = params.Text(0);
  interp.budget().Step(chars.size() * self.text().size() / 64);
  return Same(interp, self, std::string(Strip(self.text(), &chars, kLeft, kRight)));
}

// The part of the text that optional start and end arguments select; false if it is past the end.
bool Window(const Value& self, const Params& params, size_t first, std::string_view* text,
            size_t* offset) {
  const StringObj& str = self.str();
  auto length = static_cast<Int>(str.code_points);
  auto position = [&](size_t i, Int fallback) {
    if (params[i] == nullptr || params[i]->is(Kind::kNone)) return fallback;
    Int at = AsInt(*params[i], "str method");
    if (at < 0) at = std::max<Int>(at + length, 0);
    return at;
  };
  Int start = position(first, 0);
  Int end = std::min(position(first + 1, length), length);
  if (start > end) return false;
  size_t begin = ByteOffset(str.text, static_cast<size_t>(start));
  *text = std::string_view(str.text).substr(begin);
  *text = text->substr(0, ByteOffset(*text, static_cast<size_t>(end - start)));
  *offset = static_cast<size_t>(start);
  return true;
}

template <bool kLast, bool kThrow>
Value Found(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "find", {"sub", "start", "end"}, 1);
  const std::string& sub = params.Text(0);
  interp.budget().Step(self.text().size() / 64);
  std::string_view text;
  size_t offset = 0;
  if (Window(self, params, 1, &text, &offset)) {
    size_t at = kLast ? text.rfind(sub) : text.find(sub);
    if (at != std::string_view::npos) {
      return Value::OfInt(static_cast<Int>(offset + CountCodePoints(text.substr(0, at))));
    }
  }
  if (kThrow) Fail(ErrorKind::kValue, "substring not found");
  return Value::OfInt(-1);
}

size_t Occurrences(std::string_view text, std::string_view sub) {
  if (sub.empty()) return CountCodePoints(text) + 1;
  size_t count = 0;
  for (size_t at = text.find(sub); at != std::string_view::npos;
       at = text.find(sub, at + sub.size())) {
    ++count;
  }
  return count;
}

Value Count(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "count", {"sub", "start", "end"}, 1);
  interp.budget().Step(self.text().size() / 64);
  std::string_view text;
  size_t offset = 0;
  bool some = Window(self, params, 1, &text, &offset);
  return Value::OfInt(some ? static_cast<Int>(Occurrences(text, params.Text(0))) : 0);
}

template <bool kEnd>
Value Affixed(Interp&, const Value& self, CallArgs& args) {
  Params params(args, kEnd ? "endswith" : "startswith", {"affix", "start", "end"}, 1);
  std::string_view text;
  size_t offset = 0;
  bool some = Window(self, params, 1, &text, &offset);
  auto matches = [&](const Value& value) {
    if (!value.IsString()) {
      Fail(ErrorKind::kType, "{} first arg must be str or a tuple of str, not {}",
           kEnd ? "endswith" : "startswith", TypeName(value));
    }
    const std::string& affix = value.text();
    return some && (kEnd ? text.ends_with(affix) : text.starts_with(affix));
  };
  if (!params[0]->is(Kind::kTuple)) return Value::Bool(matches(*params[0]));
  const auto& affixes = params[0]->items();
  return Value::Bool(std::any_of(affixes.begin(), affixes.end(), matches));
}

// split() and rsplit() at white space: the words, and where the limit is reached the rest as it is.
Value SplitSpaces(Interp& interp, const Value& self, Int limit, bool from_right) {
  std::string_view text = self.text();
  std::vector<std::string_view> words;
  size_t start = 0;
  bool in_word = false;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    bool space = IsSpace(DecodeAt(text, i, &n));
    if (space && in_word) words.push_back(text.substr(start, i - start));
    if (!space && !in_word) start = i;
    in_word = !space;
  }
  if (in_word) words.push_back(text.substr(start));
  if (limit >= 0 && static_cast<Int>(words.size()) > limit) {
    auto keep = static_cast<size_t>(limit);
    if (from_right) {
      auto rest_end = static_cast<size_t>(words[words.size() - keep - 1].end() - text.begin());
      words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(keep));
      words.insert(words.begin(), text.substr(0, rest_end));
    } else {
      auto rest_begin = static_cast<size_t>(words[keep].begin() - text.begin());
      words.resize(keep);
      words.push_back(text.substr(rest_begin));
    }
  }
  std::vector<Value> items;
  for (std::string_view word : words) items.push_back(Same(interp, self, std::string(word)));
  return interp.MakeList(std::move(items));
}

template <bool kRight>
Value SplitBy(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "split", {"sep", "maxsplit"});
  Int limit = params.IntOr(1, -1);
  if (params[0] == nullptr || params[0]->is(Kind::kNone)) {
    return SplitSpaces(interp, self, limit, kRight);
  }
  const std::string& separator = params.Text(0);
  if (separator.empty()) Fail(ErrorKind::kValue, "empty separator");
  std::string_view text = self.text();
  std::vector<Value> items;
  while (limit != 0) {
    size_t at = kRight ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    std::string_view rest = text.substr(at + separator.size());
    items.push_back(Same(interp, self, std::string(kRight ? rest : text.substr(0, at))));
    text = kRight ? text.substr(0, at) : rest;
    if (limit > 0) --limit;
  }
  items.push_back(Same(interp, self, std::string(text)));
  if (kRight) std::reverse(items.begin(), items.end());
  return interp.MakeList(std::move(items));
}

Value Lines(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "splitlines", {"keepends"});
  std::vector<Value> items;
  for (std::string_view line : SplitLines(self.text(), params.TruthOr(0, false))) {
    items.push_back(Same(interp, self, std::string(line)));
  }
  return interp.MakeList(std::move(items));
}

Value Replace(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "replace", {"old", "new", "count"}, 2);
  const std::string& from = params.Text(0);
  std::string to = params.Text(1);
  if (self.str().markup) to = EscapeUnlessMarkup(interp, *params[1]);
  Int limit = params.IntOr(2, -1);
  const std::string& text = self.text();
  interp.budget().Step(text.size() / 64);
  uint64_t times = Occurrences(text, from);
  if (limit >= 0) times = std::min(times, ClampSize(limit));
  uint64_t grown = 0;
  if (__builtin_mul_overflow(times, static_cast<uint64_t>(to.size()), &grown))
    grown = UINT64_MAX / 2;
  interp.budget().Bytes(grown + text.size());
  std::string out;
  size_t at = 0;
  for (; times > 0; --times) {
    if (from.empty()) {
      out += to;
      size_t n = 0;
      if (at < text.size()) DecodeAt(text, at, &n);
      out.append(text, at, n);
      at += n;
      continue;
    }
    size_t hit = text.find(from, at);
    out.append(text, at, hit - at);
    out += to;
    at = hit + from.size();
  }
  out.append(text, at);
  return Value::String(std::move(out), self.str().markup);
}

Value Join(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "join", {"iterable"}, 1);
  if (params[0]->IsUndefined()) return Same(interp, self, {});
  std::string out;
  bool first = true;
  size_t position = 0;
  for (const Value& item : interp.ToVector(*params[0])) {
    if (!item.IsString() && !self.str().markup) {
      Fail(ErrorKind::kType, "sequence item {}: expected str instance, {} found", position,
           TypeName(item));
    }
    ++position;
    std::string text = self.str().markup ? EscapeUnlessMarkup(interp, item) : item.text();
    interp.budget().Bytes(text.size() + self.text().size());
    if (!first) out += self.text();
    first = false;
    out += text;
  }
  return Value::String(std::move(out), self.str().markup);
}

enum class Side { kLeft, kRight, kCenter };

template <Side kSide>
Value Pad(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "justify", {"width", "fillchar"}, 1);
  std::string fill = params[1] != nullptr ? params.Text(1) : " ";
  if (CountCodePoints(fill) != 1) {
    Fail(ErrorKind::kType, "The fill character must be exactly one character long");
  }
  Int missing = params.IntOr(0, 0) - static_cast<Int>(self.str().code_points);
  if (missing <= 0) return self;
  uint64_t total = ClampSize(missing);
  interp.budget().Bytes(std::min<uint64_t>(total, UINT64_MAX / 8) * fill.size());
  // Python puts the odd one of a centred text to the left only if the width is odd too.
  uint64_t left = kSide == Side::kRight  ? total
                  : kSide == Side::kLeft ? 0
                                         : total / 2 + (total & ClampSize(params.IntOr(0, 0)) & 1);
  std::string out;
  for (uint64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (uint64_t i = left; i < total; ++i) out += fill;
  return Same(interp, self, std::move(out));
}

Value ZeroFill(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "zfill", {"width"}, 1);
  Int missing = params.IntOr(0, 0) - static_cast<Int>(self.str().code_points);
  if (missing <= 0) return self;
  interp.budget().Bytes(ClampSize(missing));
  std::string zeros(ClampSize(missing), '0');
  const std::string& text = self.text();
  bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  return Same(interp, self, sign ? text.substr(0, 1) + zeros + text.substr(1) : zeros + text);
}

template <bool kRight>
Value Partition(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "partition", {"sep"}, 1);
  const std::string& separator = params.Text(0);
  if (separator.empty()) Fail(ErrorKind::kValue, "empty separator");
  const std::string& text = self.text();
  size_t at = kRight ? text.rfind(separator) : text.find(separator);
  auto make = [&](std::string part) { return Same(interp, self, std::move(part)); };
  if (at == std::string::npos) {
    return kRight ? Value::Tuple({make(""), make(""), self})
                  : Value::Tuple({self, make(""), make("")});
  }
  return Value::Tuple(
      {make(text.substr(0, at)), make(separator), make(text.substr(at + separator.size()))});
}

template <bool kEnd>
Value RemoveAffix(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, kEnd ? "removesuffix" : "removeprefix", {"affix"}, 1);
  const std::string& text = self.text();
  const std::string& affix = params.Text(0);
  bool has = kEnd ? text.ends_with(affix) : text.starts_with(affix);
  if (!has) return self;
  return Same(interp, self,
              kEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
}

template <CharTest kTest>
Value All(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "str test", {});
  const std::string& text = self.text();
  interp.budget().Step(text.size() / 16);
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    if (!kTest(DecodeAt(text, i, &n))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

// Cased characters exist and all of them are of the wanted case.
template <bool kUpper>
Value AllCased(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, kUpper ? "isupper" : "islower", {});
  const std::string& text = self.text();
  interp.budget().Step(text.size() / 16);
  bool any = false;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    if (IsTitle(c) || (kUpper ? IsLower(c) : IsUpper(c))) return Value::Bool(false);
    any = any || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return Value::Bool(any);
}

Value IsTitleCased(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "istitle", {});
  const std::string& text = self.text();
  bool any = false;
  bool in_word = false;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    if (IsUpper(c) || IsTitle(c)) {
      if (in_word) return Value::Bool(false);
      in_word = any = true;
    } else if (IsLower(c)) {
      if (!in_word) return Value::Bool(false);
    } else {
      in_word = false;
    }
  }
  return Value::Bool(any);
}

Value IsAscii(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "isascii", {});
  return Value::Bool(self.str().ascii());
}

Value IsPrintableText(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "isprintable", {});
  const std::string& text = self.text();
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    if (!IsPrintable(DecodeAt(text, i, &n))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

Value IsIdentifierText(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "isidentifier", {});
  const std::string& text = self.text();
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    if (!(i == 0 ? c == '_' || IsAlpha(c) : IsIdentifierChar(c))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Value ExpandTabs(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "expandtabs", {"tabsize"});
  uint64_t size = ClampSize(params.IntOr(0, 8));
  std::string out;
  uint64_t column = 0;
  for (std::string_view piece : SplitCodePoints(self.text())) {
    if (piece == "\t") {
      uint64_t fill = size == 0 ? 0 : size - column % size;
      interp.budget().Bytes(fill);
      out.append(fill, ' ');
      column += fill;
    } else {
      out += piece;
      column = piece == "\n" || piece == "\r" ? 0 : column + 1;
    }
  }
  return Same(interp, self, std::move(out));
}

constexpr MethodRow kRows[] = {
    {"strip", Stripped<true, true>},
    {"split", SplitBy<false>},
    {"startswith", Affixed<false>},
    {"endswith", Affixed<true>},
    {"replace", Replace},
    {"lstrip", Stripped<true, false>},
    {"rstrip", Stripped<false, true>},
    {"upper", Mapped<Upper>},
    {"lower", Mapped<Lower>},
    {"casefold", Mapped<Lower>},
    {"title", Mapped<Title>},
    {"capitalize", Mapped<Capitalize>},
    {"swapcase", Mapped<SwapCase>},
    {"rsplit", SplitBy<true>},
    {"splitlines", Lines},
    {"join", Join},
    {"format", FormatMethod},
    {"find", Found<false, false>},
    {"rfind", Found<true, false>},
    {"index", Found<false, true>},
    {"rindex", Found<true, true>},
    {"count", Count},
    {"ljust", Pad<Side::kLeft>},
    {"rjust", Pad<Side::kRight>},
    {"center", Pad<Side::kCenter>},
    {"zfill", ZeroFill},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"expandtabs", ExpandTabs},
    {"isalpha", All<IsAlpha>},
    {"isdigit", All<IsDigit>},
    {"isdecimal", All<IsDecimal>},
    {"isnumeric", All<IsNumeric>},
    {"isalnum", All<IsAlnum>},
    {"isspace", All<IsSpace>},
    {"isupper", AllCased<true>},
    {"islower", AllCased<false>},
    {"istitle", IsTitleCased},
    {"isascii", IsAscii},
    {"isprintable", IsPrintableText},
    {"isidentifier", IsIdentifierText},
};

}  // namespace

MethodFn FindStringMethod(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const MethodRow& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row->fn;
}

}  // namespace lucid::jinja
