// Python's str as templates see it: UTF-8 text addressed by code points, Unicode character classes,
// case mapping, white space, line ends. Entry points are the free functions below. Neighbours:
// jinja_methods.cc and jinja_filters.cc, which build on them.
//
// Bytes that are not valid UTF-8 count as one code point each and are copied through unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lucid::jinja {

// The code point at byte `at`, and in `length` how many bytes it takes (at least 1).
int32_t DecodeAt(std::string_view text, size_t at, size_t* length);
void AppendCodePoint(std::string* out, int32_t code_point);
bool IsValidUtf8(std::string_view text);
size_t CountCodePoints(std::string_view text);
// Byte offset of code point `index`; text.size() if there are fewer.
size_t ByteOffset(std::string_view text, size_t index);
// The code points as pieces of the text.
std::vector<std::string_view> SplitCodePoints(std::string_view text);

// Character classes with the meaning of the str.is* methods.
bool IsSpace(int32_t c);
bool IsAlpha(int32_t c);
bool IsDecimal(int32_t c);
bool IsDigit(int32_t c);
bool IsNumeric(int32_t c);
bool IsAlnum(int32_t c);
bool IsUpper(int32_t c);
bool IsLower(int32_t c);
bool IsTitle(int32_t c);
bool IsPrintable(int32_t c);
bool IsIdentifierChar(int32_t c);  // what may follow the first character of a name

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);

// Removes characters of `chars` (white space if null) at the chosen ends.
std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right);
// str.splitlines: pieces without their line ends, or with them if `keep`.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep = false);

// &, <, >, ' and " as HTML entities.
std::string EscapeHtml(std::string_view text);

}  // namespace lucid::jinja
