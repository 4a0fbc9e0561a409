// The longer algorithms behind filters: word wrapping as Python's textwrap, tag stripping as
// markupsafe, and Python's reading and rounding of numbers. Entry points are the functions below;
// jinja_filters_text.cc uses them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace lucid::jinja {

// textwrap.wrap(line, width, expand_tabs=False, replace_whitespace=False, ...).
std::vector<std::string> WrapText(std::string_view line, uint64_t width, bool break_long_words,
                                  bool break_on_hyphens);
std::string StripTags(std::string_view text);

// int(text, base) and float(text); false where Python raises ValueError.
bool ParseInt(std::string_view text, Int base, Int* value);
bool ParseFloat(std::string_view text, double* value);

// round(value, digits): halves go to the even neighbour.
double RoundHalfEven(double value, int digits);
Int RoundInt(Int value, int digits);

}  // namespace lucid::jinja
