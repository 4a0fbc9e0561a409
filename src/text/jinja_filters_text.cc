// Filters on text and numbers (jinja_filters.h). Each follows the Jinja filter of its name; tojson
// is the one transformers puts in its place.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/jinja_wrap.h"

namespace lucid::jinja {
namespace {

// The input as text, keeping its markup flag: what Jinja calls soft_str.
Value Soft(Interp& interp, const Value& input) {
  return input.IsString() ? input : interp.MakeString(Str(input, interp.budget()));
}

Value CallMethod(Interp& interp, const Value& text, std::string_view method, CallArgs args) {
  return FindStringMethod(method)(interp, text, args);
}

Value UpperFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "upper", {});
  return CallMethod(interp, Soft(interp, input), "upper", {});
}

Value LowerFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "lower", {});
  return CallMethod(interp, Soft(interp, input), "lower", {});
}

Value CapitalizeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "capitalize", {});
  return CallMethod(interp, Soft(interp, input), "capitalize", {});
}

Value TrimFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "trim", {"chars"});
  return CallMethod(interp, Soft(interp, input), "strip", {{params.Get(0, Value::None())}, {}});
}

// A word starts after white space or one of - ( { [ <, unlike in str.title.
Value TitleFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "title", {});
  std::string text = Str(input, interp.budget());
  std::string out;
  size_t start = 0;
  auto flush = [&](size_t end) {
    if (end == start) return;
    size_t n = 0;
    DecodeAt(text, start, &n);
    out += Upper(std::string_view(text).substr(start, n));
    out += Lower(std::string_view(text).substr(start + n, end - start - n));
  };
  bool separator = false;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    bool now = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (now != separator) {
      flush(i);
      start = i;
      separator = now;
    }
  }
  flush(text.size());
  return interp.MakeString(std::move(out));
}

Value ReplaceFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "replace", {"old", "new", "count"}, 2);
  Budget& budget = interp.budget();
  CallArgs call;
  call.pos = {interp.MakeString(Str(*params[0], budget)),
              interp.MakeString(Str(*params[1], budget))};
  if (params[2] != nullptr && !params[2]->is(Kind::kNone)) call.pos.push_back(*params[2]);
  return CallMethod(interp, interp.MakeString(Str(input, budget)), "replace", std::move(call));
}

Value CenterFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "center", {"width"});
  return CallMethod(interp, Soft(interp, input), "center", {{params.Get(0, Value::OfInt(80))}, {}});
}

Value IndentFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "indent", {"width", "first", "blank"});
  if (input.IsUndefined()) FailUndefined(input);
  std::string text = AsText(input, "indent") + "\n";
  std::string indention;
  if (params[0] != nullptr && params[0]->IsString()) {
    indention = params[0]->text();
  } else {
    uint64_t width = ClampSize(params.IntOr(0, 4));
    interp.budget().Bytes(width);
    indention.assign(width, ' ');
  }
  auto lines = SplitLines(text);
  bool blank = params.TruthOr(2, false);
  std::string out = params.TruthOr(1, false) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out += "\n";
    if (i != 0 && (blank || !lines[i].empty())) {
      interp.budget().Bytes(indention.size());
      out += indention;
    }
    out += lines[i];
  }
  return interp.MakeString(std::move(out), input.str().markup);
}

Value TruncateFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "truncate", {"length", "killwords", "end", "leeway"});
  Int length = params.IntOr(0, 255);
  std::string end = params[2] != nullptr ? params.Text(2) : "...";
  Int leeway = params[3] != nullptr && !params[3]->is(Kind::kNone) ? params.IntOr(3, 5) : 5;
  auto end_length = static_cast<Int>(CountCodePoints(end));
  if (length < end_length) {
    Fail(ErrorKind::kValue, "truncate: expected length >= {}", static_cast<int64_t>(end_length));
  }
  if (leeway < 0) Fail(ErrorKind::kValue, "truncate: expected leeway >= 0");
  std::optional<size_t> size = LengthOf(input);
  if (!size) Fail(ErrorKind::kType, "object of type '{}' has no len()", TypeName(input));
  if (static_cast<Int>(*size) <= length + leeway) return input;
  AsText(input, "truncate");
  std::string_view text = input.text();
  text = text.substr(0, ByteOffset(text, static_cast<size_t>(length - end_length)));
  if (!params.TruthOr(1, false)) text = text.substr(0, text.rfind(' '));
  return interp.MakeString(std::string(text) + end);
}

Value WordWrapFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  Int width = params.IntOr(0, 79);
  if (input.IsUndefined()) FailUndefined(input);
  AsText(input, "wordwrap");
  std::string separator =
      params[2] != nullptr && !params[2]->is(Kind::kNone) ? params.Text(2) : "\n";
  std::string out;
  bool first = true;
  for (std::string_view line : SplitLines(input.text())) {
    if (width <= 0) Fail(ErrorKind::kValue, "invalid width (must be > 0)");
    std::vector<std::string> wrapped =
        WrapText(line, ClampSize(width), params.TruthOr(1, true), params.TruthOr(3, true));
    if (wrapped.empty()) wrapped.emplace_back();
    for (const std::string& piece : wrapped) {
      interp.budget().Bytes(piece.size() + separator.size());
      if (!first) out += separator;
      first = false;
      out += piece;
    }
  }
  return interp.MakeString(std::move(out));
}

Value WordCountFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "wordcount", {});
  std::string text = Str(input, interp.budget());
  Int count = 0;
  bool in_word = false;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    bool word = c == '_' || IsAlnum(c);
    if (word && !in_word) ++count;
    in_word = word;
  }
  return Value::OfInt(count);
}

Value EscapeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "escape", {});
  return interp.MakeString(EscapeUnlessMarkup(interp, input), true);
}

Value ForceEscapeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "forceescape", {});
  return interp.MakeString(EscapeHtml(Str(input, interp.budget())), true);
}

Value SafeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "safe", {});
  return interp.MakeString(Str(input, interp.budget()), true);
}

Value StringFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "string", {});
  return Soft(interp, input);
}

// Tags and comments out, entities of EscapeHtml back to characters, runs of white space to one
// blank.
Value StripTagsFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "striptags", {});
  return interp.MakeString(StripTags(Str(input, interp.budget())));
}

Value FormatFilter(Interp& interp, const Value& input, CallArgs& args) {
  if (!args.pos.empty() && !args.kw.empty()) {
    Fail(ErrorKind::kType, "format: positional and keyword arguments cannot be mixed");
  }
  Value values = Value::Tuple(args.pos);
  if (!args.kw.empty()) {
    auto dict = std::make_shared<DictObj>();
    for (const auto& [key, value] : args.kw) dict->Set(Value::String(key), value, interp.budget());
    values = Value::Dict(std::move(dict));
  }
  return PercentFormat(interp, Soft(interp, input), values);
}

JsonStyle ReadJsonStyle(Interp& interp, const Params& params) {
  JsonStyle style;
  style.ensure_ascii = params.TruthOr(0, false);
  style.sort_keys = params.TruthOr(3, false);
  auto given = [&](size_t i) { return params[i] != nullptr && !params[i]->is(Kind::kNone); };
  if (given(1)) {
    style.pretty = true;
    style.item_separator = ",";
    if (params[1]->IsString()) {
      style.indent = params[1]->text();
    } else {
      uint64_t width = ClampSize(AsInt(*params[1], "tojson"));
      interp.budget().Bytes(width);
      style.indent.assign(width, ' ');
    }
  }
  if (given(2)) {
    std::vector<Value> pair = interp.ToVector(*params[2]);
    if (pair.size() != 2) Fail(ErrorKind::kValue, "tojson: separators must be two strings");
    style.item_separator = AsText(pair[0], "tojson");
    style.key_separator = AsText(pair[1], "tojson");
  }
  return style;
}

Value ToJsonFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  return interp.MakeString(ToJson(input, ReadJsonStyle(interp, params), interp.budget()));
}

bool IsUnreserved(char c) {
  return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '.' ||
         c == '-' || c == '~';
}

std::string Quote(std::string_view text, bool query) {
  std::string out;
  for (char c : text) {
    if (IsUnreserved(c) || (c == '/' && !query)) {
      out.push_back(c);
    } else if (c == ' ' && query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value UrlEncodeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "urlencode", {});
  bool iterable = input.IsUndefined() || input.IsSequence() || input.is(Kind::kDict) ||
                  input.is(Kind::kView) || input.is(Kind::kIterator) || input.is(Kind::kRange);
  if (input.IsString() || !iterable) {
    return interp.MakeString(Quote(Str(input, interp.budget()), false));
  }
  std::string out;
  auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += "&";
    out += Quote(Str(key, interp.budget()), true) + "=" + Quote(Str(value, interp.budget()), true);
    interp.budget().Bytes(out.size());
  };
  if (input.is(Kind::kDict)) {
    for (const auto& [key, value] : input.dict().items) add(key, value);
  } else {
    for (const Value& pair : interp.ToVector(input)) {
      std::vector<Value> parts = interp.ToVector(pair);
      if (parts.size() != 2) Fail(ErrorKind::kValue, "urlencode needs pairs of key and value");
      add(parts[0], parts[1]);
    }
  }
  return interp.MakeString(std::move(out));
}

Value XmlAttrFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "xmlattr", {"autospace"});
  if (input.IsUndefined()) FailUndefined(input);
  if (!input.is(Kind::kDict)) Fail(ErrorKind::kType, "xmlattr needs a mapping");
  std::string out;
  for (const auto& [key, value] : input.dict().items) {
    if (value.is(Kind::kNone) || value.IsUndefined()) continue;
    if (AsText(key, "xmlattr").find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      Fail(ErrorKind::kValue, "Invalid character in attribute name: {}", ShortRepr(key));
    }
    if (!out.empty()) out += " ";
    out += EscapeUnlessMarkup(interp, key) + "=\"" + EscapeUnlessMarkup(interp, value) + "\"";
    interp.budget().Bytes(out.size());
  }
  if (params.TruthOr(0, true) && !out.empty()) out.insert(0, " ");
  return interp.MakeString(std::move(out));
}

Value AbsFilter(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "abs", {});
  if (input.IsUndefined()) FailUndefined(input);
  if (input.IsIntegral()) {
    Int i = input.int_value();
    return Value::OfInt(i < 0 ? -i : i);
  }
  if (!input.is(Kind::kFloat))
    Fail(ErrorKind::kType, "bad operand type for abs(): '{}'", TypeName(input));
  return Value::Float(std::fabs(input.AsDouble()));
}

Value RoundFilter(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "round", {"precision", "method"});
  std::string method = params[1] != nullptr ? params.Text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail(ErrorKind::kValue, "round: method must be common, ceil or floor");
  }
  Int precision = params.IntOr(0, 0);
  if (input.IsUndefined()) FailUndefined(input);
  if (!input.IsNumber())
    Fail(ErrorKind::kType, "type {} doesn't define __round__ method", TypeName(input));
  if (precision > 300 || precision < -300) Fail(ErrorKind::kLimit, "round: precision is too large");
  auto digits = static_cast<int>(precision);
  if (method == "common") {
    if (input.IsIntegral()) return Value::OfInt(RoundInt(input.int_value(), digits));
    return Value::Float(RoundHalfEven(input.AsDouble(), digits));
  }
  double scale = std::pow(10.0, digits);
  double scaled = input.AsDouble() * scale;
  if (!std::isfinite(scaled)) Fail(ErrorKind::kValue, "cannot round this float");
  double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value::Float((whole + 0.0) / scale);  // + 0.0: Python's integers have no -0
}

Value IntFilter(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "int", {"default", "base"});
  Value fallback = params.Get(0, Value::OfInt(0));
  Int base = params.IntOr(1, 10);
  if (input.IsUndefined()) FailUndefined(input);
  if (input.IsIntegral()) return Value::OfInt(input.int_value());
  double number = 0;
  if (input.IsString()) {
    Int value = 0;
    if (ParseInt(input.text(), base, &value)) return Value::OfInt(value);
    if (!ParseFloat(input.text(), &number)) return fallback;
  } else if (input.is(Kind::kFloat)) {
    number = input.AsDouble();
    if (std::isinf(number)) Fail(ErrorKind::kValue, "cannot convert float infinity to integer");
  } else {
    return fallback;
  }
  if (!std::isfinite(number)) return fallback;
  if (std::fabs(number) >= 8e37) Fail(ErrorKind::kLimit, "int: the number is too large");
  return Value::OfInt(static_cast<Int>(number));
}

Value FloatFilter(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "float", {"default"});
  if (input.IsUndefined()) FailUndefined(input);
  if (input.IsNumber()) return Value::Float(input.AsDouble());
  double number = 0;
  if (input.IsString() && ParseFloat(input.text(), &number)) return Value::Float(number);
  return params.Get(0, Value::Float(0.0));
}

Value FileSizeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "filesizeformat", {"binary"});
  if (input.IsUndefined()) FailUndefined(input);
  double bytes = 0;
  if (input.IsNumber()) {
    bytes = input.AsDouble();
  } else if (!input.IsString() || !ParseFloat(input.text(), &bytes)) {
    Fail(ErrorKind::kType, "filesizeformat needs a number");
  }
  bool binary = params.TruthOr(0, false);
  double base = binary ? 1024 : 1000;
  if (bytes == 1) return interp.MakeString("1 Byte");
  if (bytes < base) return interp.MakeString(fmt::format("{} Bytes", static_cast<int64_t>(bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t at = 0;
  for (; at + 1 < kPrefixes.size() && bytes >= unit * base; ++at) unit *= base;
  std::string prefix(1, kPrefixes[at]);
  if (binary) prefix = Upper(prefix) + "i";
  return interp.MakeString(fmt::format("{:.1f} {}B", bytes / unit, prefix));
}

constexpr FilterRow kRows[] = {
    {"abs", AbsFilter},
    {"capitalize", CapitalizeFilter},
    {"center", CenterFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"filesizeformat", FileSizeFilter},
    {"float", FloatFilter},
    {"forceescape", ForceEscapeFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"int", IntFilter},
    {"lower", LowerFilter},
    {"replace", ReplaceFilter},
    {"round", RoundFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"striptags", StripTagsFilter},
    {"title", TitleFilter},
    {"tojson", ToJsonFilter},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", UpperFilter},
    {"urlencode", UrlEncodeFilter},
    {"wordcount", WordCountFilter},
    {"wordwrap", WordWrapFilter},
    {"xmlattr", XmlAttrFilter},
};

}  // namespace

FilterFn FindTextFilter(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const FilterRow& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row->fn;
}

}  // namespace lucid::jinja
