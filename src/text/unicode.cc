#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

namespace lucid {
namespace {

utf8proc_category_t Category(int32_t code) {
  return utf8proc_category(code);
}

struct CodeRange {
  int32_t first, last;
};

// Marks and characters with decompositions that came after Unicode 9.0. The `tokenizers` library
// normalises by the tables of 9.0, and with it the texts that models were trained on: to it these
// are plain characters.
constexpr CodeRange kNewerThanNormalization[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

struct CaseRange {
  int32_t first, last;  // upper case
  int32_t lower;        // of the first
};

// Upper case letters of Unicode 16 and 17, which utf8proc 2.8 (15.0) does not know.
constexpr CaseRange kNewerCases[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB},
};

bool IsNewerThanNormalization(int32_t code) {
  if (code < kNewerThanNormalization[0].first) return false;
  const auto* row =
      std::upper_bound(std::begin(kNewerThanNormalization), std::end(kNewerThanNormalization), code,
                       [](int32_t c, const CodeRange& r) { return c < r.first; });
  return code <= (row - 1)->last;
}

int32_t AsciiLower(int32_t code) {
  return code >= 'A' && code <= 'Z' ? code + 32 : code;
}

int32_t Lower(int32_t code) {
  for (const CaseRange& row : kNewerCases) {
    if (code >= row.first && code <= row.last) return row.lower + (code - row.first);
  }
  return utf8proc_tolower(code);
}

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Text below U+0300 holds no marks and nothing that composes: it is its own NFC.
bool IsTriviallyNfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

// Appends the full decomposition of `code`. Marks are put in order later.
void Decompose(int32_t code, utf8proc_option_t options, std::vector<int32_t>& out) {
  std::array<utf8proc_int32_t, 32> buffer;
  int last_class = 0;
  const auto n = utf8proc_decompose_char(code, buffer.data(), buffer.size(), options, &last_class);
  if (n < 0 || static_cast<size_t>(n) > buffer.size()) {
    out.push_back(code);
    return;
  }
  out.insert(out.end(), buffer.begin(), buffer.begin() + n);
}

int CombiningClass(int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Canonical ordering. utf8proc's own is quadratic in a run of marks, so it is not used.
void OrderMarks(std::vector<int32_t>& codes) {
  for (size_t i = 0; i < codes.size();) {
    if (CombiningClass(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < codes.size() && CombiningClass(codes[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(i),
                       codes.begin() + static_cast<ptrdiff_t>(end),
                       [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    }
    i = end;
  }
}

void FlushNormalized(std::vector<int32_t>& codes, bool compose, std::string& out) {
  OrderMarks(codes);
  size_t n = codes.size();
  if (compose && n > 0) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto composed =
        utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(n), options);
    if (composed >= 0) n = static_cast<size_t>(composed);
  }
  for (size_t i = 0; i < n; ++i) AppendUtf8(codes[i], out);
  codes.clear();
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {static_cast<int32_t>(lead), 1};
  const size_t left = text.size() - at;
  const auto follows = [&](size_t i) { return i < left && IsContinuation(text[at + i]); };
  if (lead >= 0xC2 && lead <= 0xDF && follows(1)) {
    return {static_cast<int32_t>((lead & 0x1F) << 6 | (byte(1) & 0x3F)), 2};
  }
  if (lead >= 0xE0 && lead <= 0xEF && follows(1) && follows(2)) {
    const uint32_t code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) return {static_cast<int32_t>(code), 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && follows(1) && follows(2) && follows(3)) {
    const uint32_t code =
        (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    if (code >= 0x10000 && code <= 0x10FFFF) return {static_cast<int32_t>(code), 4};
  }
  return {-1, 1};
}

void AppendUtf8(int32_t code, std::string& out) {
  const auto c = static_cast<uint32_t>(code);
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t IncompleteTail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if (IsContinuation(text[at])) continue;
    const auto lead = static_cast<unsigned char>(text[at]);
    const size_t need = lead >= 0xF0 && lead <= 0xF4  ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                                                      : 1;
    if (need <= back) return 0;
    if (back == 1) return 1;
    // The second byte decides whether the start can still become a character.
    const auto second = static_cast<unsigned char>(text[at + 1]);
    const bool hopeless = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
    return hopeless ? 0 : back;
  }
  return 0;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool IsWhitespace(int32_t code) {
  if (code < 0) return false;
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsPunctuation(int32_t code) {
  if (code < 0) return false;
  const auto category = Category(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsNumeric(int32_t code) {
  if (code < 0) return false;
  const auto category = Category(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsMark(int32_t code) {
  if (code < 0) return false;
  const auto category = Category(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(int32_t code) {
  return code >= 0 && Category(code) == UTF8PROC_CATEGORY_MN;
}

int DisplayColumns(int32_t code) {
  return utf8proc_charwidth(code);
}

bool IsGraphemeBreak(int32_t before, int32_t after, int32_t* state) {
  if (before < 0 || after < 0) return true;
  return utf8proc_grapheme_break_stateful(before, after, state);
}

bool IsWordChar(int32_t code) {
  if (code < 0) return false;
  const auto category = Category(code);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL)
    return true;  // L*, M*, Nd, Nl
  // Other_Alphabetic that is not a mark: circled and squared Latin letters. Join_Control: ZWNJ,
  // ZWJ.
  return category == UTF8PROC_CATEGORY_PC || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189) || code == 0x200C || code == 0x200D;
}

bool IsControl(int32_t code) {
  if (code < 0) return false;
  const auto category = Category(code);
  if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CO) return true;
  // The format characters of Unicode 8, which the library's table stops at.
  const bool is_newer = code == 0x890 || code == 0x891 || code == 0x8E2 || code == 0x110CD ||
                        (code >= 0x13430 && code <= 0x1343F);
  return category == UTF8PROC_CATEGORY_CF && !is_newer;
}

std::string NormalizeUnicode(std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  if (IsAscii(text) || (form == NormalForm::kNfc && IsTriviallyNfc(text))) return std::string(text);
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compat ? UTF8PROC_COMPAT : 0));
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    // An ASCII character neither changes nor combines with what stood before it.
    if (c.code < 0x80) {
      FlushNormalized(codes, compose, out);
      if (c.code < 0) {
        out.push_back(text[at]);
      } else {
        codes.push_back(c.code);
      }
    } else if (IsNewerThanNormalization(c.code)) {
      FlushNormalized(codes, compose, out);
      out += text.substr(at, c.length);
    } else {
      Decompose(c.code, options, codes);
    }
    at += c.length;
  }
  FlushNormalized(codes, compose, out);
  return out;
}

std::string LowercaseUnicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (c.code < 0) {
      out.push_back(text[at]);
    } else if (c.code == 0x130) {  // the one character whose lower case is two
      out += "i\xCC\x87";
    } else {
      AppendUtf8(c.code < 0x80 ? AsciiLower(c.code) : Lower(c.code), out);
    }
    at += c.length;
  }
  return out;
}

}  // namespace lucid
