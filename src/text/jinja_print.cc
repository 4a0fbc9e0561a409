// See jinja_print.h.
#include "text/jinja_print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_eval.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

void Append(std::string* out, std::string_view text, Budget& budget) {
  budget.Bytes(text.size() + 1);
  out->append(text);
}

void AppendRepr(std::string* out, const Value& value, Budget& budget, uint32_t depth);

template <typename Items>
void AppendItems(std::string* out, const Items& items, Budget& budget, uint32_t depth) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) Append(out, ", ", budget);
    first = false;
    AppendRepr(out, item, budget, depth);
  }
}

void AppendDict(std::string* out, const DictObj& dict, Budget& budget, uint32_t depth) {
  Append(out, "{", budget);
  bool first = true;
  for (const auto& [key, item] : dict.items) {
    if (!first) Append(out, ", ", budget);
    first = false;
    AppendRepr(out, key, budget, depth);
    Append(out, ": ", budget);
    AppendRepr(out, item, budget, depth);
  }
  Append(out, "}", budget);
}

void AppendObject(std::string* out, const Value& value, Budget& budget, uint32_t depth) {
  switch (value.kind()) {
    case Kind::kView: {
      const auto& view = value.as<ViewObj>();
      Append(out, fmt::format("{}([", TypeName(value)), budget);
      for (size_t i = 0; i < view.dict->items.size(); ++i) {
        if (i != 0) Append(out, ", ", budget);
        AppendRepr(out, view.At(i), budget, depth);
      }
      return Append(out, "])", budget);
    }
    case Kind::kRange: {
      const auto& range = value.as<RangeObj>();
      std::string text = "range(" + IntToString(range.start) + ", " + IntToString(range.stop);
      if (range.step != 1) text += ", " + IntToString(range.step);
      return Append(out, text + ")", budget);
    }
    case Kind::kNamespace:
      Append(out, "<Namespace ", budget);
      AppendDict(out, value.as<NamespaceObj>().attrs, budget, depth);
      return Append(out, ">", budget);
    case Kind::kMacro: {
      const std::string& name = value.as<MacroObj>().name;
      return Append(out, name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", name),
                    budget);
    }
    case Kind::kLoop: {
      auto& loop = value.as<LoopObj>();
      return Append(out, fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.Length()),
                    budget);
    }
    case Kind::kFunction:
      return Append(out, fmt::format("<function {}>", value.as<FunctionObj>().name), budget);
    default:
      return Append(out, fmt::format("<{} object>", TypeName(value)), budget);
  }
}

void AppendRepr(std::string* out, const Value& value, Budget& budget, uint32_t depth) {
  if (depth > kMaxValueDepth) {
    Fail(ErrorKind::kLimit, "a value is nested more than {} levels deep", kMaxValueDepth);
  }
  budget.Step();
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return Append(out, "Undefined", budget);
    case Kind::kNone:
      return Append(out, "None", budget);
    case Kind::kBool:
      return Append(out, value.bool_value() ? "True" : "False", budget);
    case Kind::kInt:
      return Append(out, IntToString(value.int_value()), budget);
    case Kind::kFloat:
      return Append(out, FloatRepr(value.AsDouble()), budget);
    case Kind::kString: {
      std::string quoted = QuotedRepr(value.text());
      return Append(out, value.str().markup ? "Markup(" + quoted + ")" : quoted, budget);
    }
    case Kind::kList:
      Append(out, "[", budget);
      AppendItems(out, value.items(), budget, depth + 1);
      return Append(out, "]", budget);
    case Kind::kTuple:
      Append(out, "(", budget);
      AppendItems(out, value.items(), budget, depth + 1);
      return Append(out, value.items().size() == 1 ? ",)" : ")", budget);
    case Kind::kDict:
      return AppendDict(out, value.dict(), budget, depth + 1);
    default:
      return AppendObject(out, value, budget, depth + 1);
  }
}

void AppendEscape(std::string* out, int32_t c) {
  if (c < 0) c = -c;
  if (c < 0x100) {
    *out += fmt::format("\\x{:02x}", c);
  } else if (c < 0x10000) {
    *out += fmt::format("\\u{:04x}", c);
  } else {
    *out += fmt::format("\\U{:08x}", c);
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void Write(const Value& value, size_t level) {
    budget_.Step();
    switch (value.kind()) {
      case Kind::kNone:
        return Put("null");
      case Kind::kBool:
        return Put(value.bool_value() ? "true" : "false");
      case Kind::kInt:
        return Put(IntToString(value.int_value()));
      case Kind::kFloat:
        return Put(FloatText(value.AsDouble()));
      case Kind::kString:
        return WriteString(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return WriteArray(value.items(), level);
      case Kind::kDict:
        return WriteObject(value.dict(), level);
      default:
        Fail(ErrorKind::kType, "Object of type {} is not JSON serializable", TypeName(value));
    }
  }

  std::string out;

 private:
  void Put(std::string_view text) { Append(&out, text, budget_); }

  static std::string FloatText(double f) {
    if (std::isnan(f)) return "NaN";
    if (std::isinf(f)) return f > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(f);
  }

  void NewLine(size_t level) {
    if (!style_.pretty) return;
    budget_.Bytes(level * style_.indent.size());
    out.push_back('\n');
    for (size_t i = 0; i < level; ++i) out += style_.indent;
  }

  void WriteArray(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return Put("[]");
    Put("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i != 0) Put(style_.item_separator);
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    Put("]");
  }

  std::string KeyText(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.bool_value() ? "true" : "false";
      case Kind::kInt:
        return IntToString(key.int_value());
      case Kind::kFloat:
        return FloatText(key.AsDouble());
      default:
        Fail(ErrorKind::kType, "keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
  }

  void WriteObject(const DictObj& dict, size_t level) {
    if (dict.items.empty()) return Put("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : dict.items) order.push_back(&item);
    if (style_.sort_keys) {
      // Types without an order must fail as in Python, and a throwing comparison must not reach
      // std::stable_sort half way; a plain insertion keeps that simple for the few keys of a
      // schema.
      for (size_t i = 1; i < order.size(); ++i) {
        for (size_t j = i; j > 0 && Less(order[j]->first, order[j - 1]->first, budget_); --j) {
          std::swap(order[j], order[j - 1]);
        }
      }
    }
    Put("{");
    bool first = true;
    for (const auto* item : order) {
      if (!first) Put(style_.item_separator);
      first = false;
      NewLine(level + 1);
      WriteString(KeyText(item->first));
      Put(style_.key_separator);
      Write(item->second, level + 1);
    }
    NewLine(level);
    Put("}");
  }

  void WriteString(std::string_view text) {
    budget_.Bytes(text.size() + 2);
    out.push_back('"');
    for (size_t i = 0, n = 0; i < text.size(); i += n) {
      int32_t c = DecodeAt(text, i, &n);
      switch (c) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\b':
          out += "\\b";
          break;
        case '\f':
          out += "\\f";
          break;
        default:
          if (c >= 0 && c < 0x20) {
            out += fmt::format("\\u{:04x}", c);
          } else if (c >= 0x7F && style_.ensure_ascii) {
            WriteAscii(c);
          } else {
            out.append(text.substr(i, n));
          }
      }
    }
    out.push_back('"');
  }

  void WriteAscii(int32_t c) {
    if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      int32_t v = c - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 | v >> 10, 0xDC00 | (v & 0x3FF));
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

std::string Str(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return {};
    case Kind::kString:
      budget.Bytes(value.text().size());
      return value.text();
    default:
      return Repr(value, budget);
  }
}

std::string Repr(const Value& value, Budget& budget) {
  std::string out;
  AppendRepr(&out, value, budget, 0);
  return out;
}

std::string ShortRepr(const Value& value) {
  Budget budget(1000, 4000);
  try {
    return Repr(value, budget);
  } catch (const TemplateError&) {
    return fmt::format("<{}>", TypeName(value));
  }
}

std::string IntToString(Int i) {
  bool negative = i < 0;
  std::string digits;
  do {
    auto digit = static_cast<int>(i % 10);
    digits.push_back(static_cast<char>('0' + (digit < 0 ? -digit : digit)));
    i /= 10;
  } while (i != 0);
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FloatRepr(double f) {
  if (std::isnan(f)) return "nan";
  if (std::isinf(f)) return f > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, f, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  std::string sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {  // the bounds of Python's repr
    if (count > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  digits.insert(static_cast<size_t>(exponent) + 1, ".");
  return sign + digits;
}

std::string QuotedRepr(std::string_view text, bool ascii) {
  bool single = text.find('\'') != std::string_view::npos;
  bool both = single && text.find('"') != std::string_view::npos;
  char quote = single && !both ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    if (c == quote || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0 || !IsPrintable(c) || (ascii && c >= 0x80)) {
      AppendEscape(&out, c);
    } else {
      out.append(text.substr(i, n));
    }
  }
  out.push_back(quote);
  return out;
}

std::string ToJson(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.Write(value, 0);
  return std::move(writer.out);
}

}  // namespace lucid::jinja
