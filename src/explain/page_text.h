// A page for terminals: lines of at most 100 columns, without colours. Neighbours: page_html.h.
#pragma once

#include <string>
#include <string_view>

#include "explain/page.h"

namespace lucid {

inline constexpr size_t kPageColumns = 100;

std::string PageText(const Page& page);
// A paragraph: words in lines that fit, each with its end.
std::string WrappedText(std::string_view text);

// Columns that a terminal takes for a text: two for wide characters, none for marks.
size_t DisplayWidth(std::string_view text);
// With spaces behind (or, `right`, before) it up to that width; cut with "..." where it is wider.
std::string Padded(std::string_view text, size_t width, bool right = false);

// The drawing of a figure with characters.
std::string FigureText(const Figure& figure);

}  // namespace lucid
