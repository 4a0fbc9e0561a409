// Python's operators on template values. Entry points: Arithmetic, Negate, Contains, SliceOf.
// Neighbours: jinja_expr.cc calls them; jinja_format.cc does str % values.
#pragma once

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace lucid::jinja {

// left op right. kType, kValue, kUndefined or kLimit errors as Python raises them.
Value Arithmetic(Interp& interp, BinaryOp op, const Value& left, const Value& right);
Value Negate(const Value& value);
// item in container.
bool Contains(Interp& interp, const Value& container, const Value& item);
// object[start:stop:step] with none for absent parts.
Value SliceOf(Interp& interp, const Value& object, const Value& start, const Value& stop,
              const Value& step);
bool Compare(Interp& interp, CompareOp op, const Value& left, const Value& right);
// object[index] for str, list, tuple, range and dict; false where Python raises TypeError or
// LookupError.
bool Subscript(Interp& interp, const Value& object, const Value& index, Value* result);

// Escapes the side that is not markup; used by + and by the methods of escaped strings.
std::string EscapeUnlessMarkup(Interp& interp, const Value& value);

}  // namespace lucid::jinja
