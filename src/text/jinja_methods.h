// Methods and attributes of Python's built-in types, as far as the immutable sandbox of
// transformers lets templates use them. Entry points: FindMethod, IsMutator, PlainAttr. Rows:
// jinja_methods.cc (list, tuple, dict, numbers), jinja_methods_str.cc (str).
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace lucid::jinja {

using MethodFn = Value (*)(Interp& interp, const Value& self, CallArgs& args);

struct MethodRow {
  std::string_view name;
  MethodFn fn;
};

MethodFn FindMethod(const Value& object, std::string_view name);  // null if there is none
MethodFn FindStringMethod(std::string_view name);
// Methods that would change a list or dict; the sandbox refuses them.
bool IsMutator(const Value& object, std::string_view name);
// Attributes that are not methods (int.real, the parts of a groupby pair); false if there is none.
bool PlainAttr(const Value& object, std::string_view name, Value* result);

// str % values, and str.format. In jinja_format.cc.
Value PercentFormat(Interp& interp, const Value& format, const Value& values);
Value FormatMethod(Interp& interp, const Value& self, CallArgs& args);

}  // namespace lucid::jinja
