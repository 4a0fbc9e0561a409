// The filters, tests and globals of Jinja that chat templates can use, each in a table of name and
// function; pprint, random, urlize and lipsum are left out, which no prompt needs. Entry points:
// FindFilter, FindTest, FindGlobal. jinja_filters_text.cc, jinja_filters_seq.cc, jinja_tests.cc and
// jinja_globals.cc hold the rows.
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace lucid::jinja {

using FilterFn = Value (*)(Interp& interp, const Value& input, CallArgs& args);
using TestFn = bool (*)(Interp& interp, const Value& input, CallArgs& args);

FilterFn FindFilter(std::string_view name);  // null if there is none
TestFn FindTest(std::string_view name);
inline bool HasFilter(std::string_view name) {
  return FindFilter(name) != nullptr;
}
inline bool HasTest(std::string_view name) {
  return FindTest(name) != nullptr;
}
// range, dict, namespace, ...; kMissing if there is none.
Value FindGlobal(std::string_view name);

struct FilterRow {
  std::string_view name;
  FilterFn fn;
};
FilterFn FindTextFilter(std::string_view name);
FilterFn FindSequenceFilter(std::string_view name);

}  // namespace lucid::jinja
