// The Unicode facts a tokenizer needs: UTF-8 steps, categories, the four normal forms. A thin layer
// over utf8proc; every function accepts invalid UTF-8 and keeps its bytes as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lucid {

// One step through UTF-8. `code` is -1 for a byte that starts no valid character; `length` is
// then 1.
struct Utf8Char {
  int32_t code = -1;
  uint32_t length = 1;
};

// The character at text[at]; at < text.size(). Overlong forms, surrogates and values above U+10FFFF
// are invalid.
Utf8Char DecodeUtf8(std::string_view text, size_t at);
void AppendUtf8(int32_t code, std::string& out);

// How many bytes at the end of `text` are the beginning of a character that is not complete yet (0
// to 3).
size_t IncompleteTail(std::string_view text);

bool IsAscii(std::string_view text);
bool IsWhitespace(int32_t code);      // property White_Space
bool IsPunctuation(int32_t code);     // category P*
bool IsNumeric(int32_t code);         // category N*
bool IsMark(int32_t code);            // category M*
bool IsNonspacingMark(int32_t code);  // category Mn
bool IsWordChar(int32_t code);        // Alphabetic, M*, Nd, Pc, Join_Control: `\w`
bool IsControl(int32_t code);         // Cc, Cf, Co: what BERT's clean_text removes

// Columns of a terminal that the character takes: 0 for marks and controls, 2 for wide ones.
int DisplayColumns(int32_t code);

// True where an extended grapheme cluster ends between two neighbours. `state` starts at 0 and is
// carried.
bool IsGraphemeBreak(int32_t before, int32_t after, int32_t* state);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Linear in the length but for sorting runs of marks (n log n). Invalid bytes split the text and
// stay.
std::string NormalizeUnicode(std::string_view text, NormalForm form);

// Full lower-case mapping character by character, without context (no final sigma).
std::string LowercaseUnicode(std::string_view text);

}  // namespace lucid
