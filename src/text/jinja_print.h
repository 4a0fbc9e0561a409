// Values as text: Python's str() and repr(), and json.dumps for the tojson filter. Entry points:
// Str, Repr, ToJson. Neighbours: jinja_value.h; used by output, filters and formatting.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace lucid::jinja {

// Python's str(value): what `{{ value }}` prints; "" for undefined.
std::string Str(const Value& value, Budget& budget);
std::string Repr(const Value& value, Budget& budget);
// Repr with a small budget of its own, for error messages about scalars and short strings.
std::string ShortRepr(const Value& value);

std::string IntToString(Int i);
// Python's repr of a float: the shortest digits that read back the same, "1e+16", "1.0", "nan".
std::string FloatRepr(double f);
// Python's repr of a str; non-ASCII characters as escapes too if `ascii`.
std::string QuotedRepr(std::string_view text, bool ascii = false);

struct JsonStyle {
  bool ensure_ascii = false;
  bool pretty = false;  // an indent was given, even an empty one
  std::string indent;   // one level of it
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(value). kType error for a value that JSON has no form for.
std::string ToJson(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace lucid::jinja
