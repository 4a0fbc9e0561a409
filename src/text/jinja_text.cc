// See jinja_text.h. Character properties come from utf8proc; the multi-character case mappings
// (Unicode SpecialCasing) that utf8proc leaves out are tabled here.
#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace lucid::jinja {
namespace {

struct FullUpper {
  int32_t from;
  const char32_t* to;
};

// Characters whose upper case is more than one character, in ascending order; U+1F80 to U+1FAF
// follow a rule and are not listed.
constexpr FullUpper kFullUpper[] = {
    {0xDF, U"\x53\x53"},          {0x149, U"\x2BC\x4E"},        {0x1F0, U"\x4A\x30C"},
    {0x390, U"\x399\x308\x301"},  {0x3B0, U"\x3A5\x308\x301"},  {0x587, U"\x535\x552"},
    {0x1E96, U"\x48\x331"},       {0x1E97, U"\x54\x308"},       {0x1E98, U"\x57\x30A"},
    {0x1E99, U"\x59\x30A"},       {0x1E9A, U"\x41\x2BE"},       {0x1F50, U"\x3A5\x313"},
    {0x1F52, U"\x3A5\x313\x300"}, {0x1F54, U"\x3A5\x313\x301"}, {0x1F56, U"\x3A5\x313\x342"},
    {0x1FB2, U"\x1FBA\x399"},     {0x1FB3, U"\x391\x399"},      {0x1FB4, U"\x386\x399"},
    {0x1FB6, U"\x391\x342"},      {0x1FB7, U"\x391\x342\x399"}, {0x1FBC, U"\x391\x399"},
    {0x1FC2, U"\x1FCA\x399"},     {0x1FC3, U"\x397\x399"},      {0x1FC4, U"\x389\x399"},
    {0x1FC6, U"\x397\x342"},      {0x1FC7, U"\x397\x342\x399"}, {0x1FCC, U"\x397\x399"},
    {0x1FD2, U"\x399\x308\x300"}, {0x1FD3, U"\x399\x308\x301"}, {0x1FD6, U"\x399\x342"},
    {0x1FD7, U"\x399\x308\x342"}, {0x1FE2, U"\x3A5\x308\x300"}, {0x1FE3, U"\x3A5\x308\x301"},
    {0x1FE4, U"\x3A1\x313"},      {0x1FE6, U"\x3A5\x342"},      {0x1FE7, U"\x3A5\x308\x342"},
    {0x1FF2, U"\x1FFA\x399"},     {0x1FF3, U"\x3A9\x399"},      {0x1FF4, U"\x38F\x399"},
    {0x1FF6, U"\x3A9\x342"},      {0x1FF7, U"\x3A9\x342\x399"}, {0x1FFC, U"\x3A9\x399"},
    {0xFB00, U"\x46\x46"},        {0xFB01, U"\x46\x49"},        {0xFB02, U"\x46\x4C"},
    {0xFB03, U"\x46\x46\x49"},    {0xFB04, U"\x46\x46\x4C"},    {0xFB05, U"\x53\x54"},
    {0xFB06, U"\x53\x54"},        {0xFB13, U"\x544\x546"},      {0xFB14, U"\x544\x535"},
    {0xFB15, U"\x544\x53B"},      {0xFB16, U"\x54E\x546"},      {0xFB17, U"\x544\x53D"},
};

constexpr int32_t kCapitalIota = 0x399;
constexpr int32_t kIotaSubscript = 0x345;
constexpr int32_t kDottedI = 0x130;

bool IsCont(unsigned char c) {
  return (c & 0xC0) == 0x80;
}

const char32_t* FindFullUpper(int32_t c) {
  if (c < 0xDF) return nullptr;
  const auto* it = std::lower_bound(std::begin(kFullUpper), std::end(kFullUpper), c,
                                    [](const FullUpper& row, int32_t x) { return row.from < x; });
  return it != std::end(kFullUpper) && it->from == c ? it->to : nullptr;
}

void AppendUpper(std::string* out, int32_t c) {
  if (c >= 0x1F80 && c <= 0x1FAF) {  // Greek with iota subscript: capital letter, then capital iota
    int32_t base = c < 0x1F90 ? 0x1F08 : c < 0x1FA0 ? 0x1F28 : 0x1F68;
    AppendCodePoint(out, base + (c & 7));
    AppendCodePoint(out, kCapitalIota);
    return;
  }
  if (const char32_t* full = FindFullUpper(c)) {
    for (; *full != 0; ++full) AppendCodePoint(out, static_cast<int32_t>(*full));
    return;
  }
  AppendCodePoint(out, utf8proc_toupper(c));
}

void AppendTitle(std::string* out, int32_t c) {
  const char32_t* full = FindFullUpper(c);
  if (full == nullptr || utf8proc_totitle(c) != c || utf8proc_category(c) == UTF8PROC_CATEGORY_LT) {
    AppendCodePoint(out, utf8proc_totitle(c));
    return;
  }
  AppendCodePoint(out, static_cast<int32_t>(*full));
  for (++full; *full != 0; ++full) {
    auto next = static_cast<int32_t>(*full);
    bool greek = next == kCapitalIota && c >= 0x1F00;
    bool keep = c == 0x149;  // the only letter whose second part stays a capital
    AppendCodePoint(out, greek ? kIotaSubscript : keep ? next : utf8proc_tolower(next));
  }
}

bool IsCased(int32_t c) {
  return IsUpper(c) || IsLower(c) || IsTitle(c);
}

// Marks and the like do not end a word when deciding between the two lower-case sigmas.
bool IsCaseIgnorable(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2018;
  }
}

bool IsFinalSigma(const std::vector<int32_t>& text, size_t at) {
  size_t i = at;
  while (i > 0 && IsCaseIgnorable(text[i - 1])) --i;
  if (i == 0 || !IsCased(text[i - 1])) return false;
  i = at + 1;
  while (i < text.size() && IsCaseIgnorable(text[i])) ++i;
  return i == text.size() || !IsCased(text[i]);
}

std::vector<int32_t> Decode(std::string_view text) {
  std::vector<int32_t> out;
  for (size_t i = 0, n = 0; i < text.size(); i += n) out.push_back(DecodeAt(text, i, &n));
  return out;
}

void AppendLower(std::string* out, const std::vector<int32_t>& text, size_t at) {
  int32_t c = text[at];
  if (c == 0x3A3) {
    AppendCodePoint(out, IsFinalSigma(text, at) ? 0x3C2 : 0x3C3);
  } else if (c == kDottedI) {
    out->append("i\xCC\x87");
  } else {
    AppendCodePoint(out, utf8proc_tolower(c));
  }
}

bool InCategory(int32_t c, utf8proc_category_t first, utf8proc_category_t last) {
  utf8proc_category_t category = utf8proc_category(c);
  return category >= first && category <= last;
}

struct Range {
  int32_t first, last;
};

bool InRanges(int32_t c, const Range* begin, const Range* end) {
  return std::any_of(begin, end, [c](const Range& r) { return c >= r.first && c <= r.last; });
}

// Numeric_Type=Digit outside category Nd.
constexpr Range kDigits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Han characters that are numbers, the ones in everyday use.
constexpr int32_t kHanNumbers[] = {0x3007, 0x4E00, 0x4E03, 0x4E07, 0x4E09, 0x4E5D, 0x4E8C,
                                   0x4E94, 0x4EBF, 0x5104, 0x5146, 0x516B, 0x516D, 0x5341,
                                   0x5343, 0x56DB, 0x767E, 0x842C, 0x96F6};

// Lower-case (upper-case) by property though not letters of category Ll (Lu).
constexpr Range kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Range kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

bool IsLineEnd(int32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

int32_t DecodeAt(std::string_view text, size_t at, size_t* length) {
  auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0);
  };
  unsigned char a = byte(at);
  *length = 1;
  if (a < 0x80) return a;
  unsigned char b = byte(at + 1);
  unsigned char c = byte(at + 2);
  unsigned char d = byte(at + 3);
  int32_t cp = -1;
  if (a >= 0xC2 && a <= 0xDF && IsCont(b)) {
    *length = 2;
    return (a & 0x1F) << 6 | (b & 0x3F);
  }
  if (a >= 0xE0 && a <= 0xEF && IsCont(b) && IsCont(c)) {
    cp = (a & 0x0F) << 12 | (b & 0x3F) << 6 | (c & 0x3F);
    if (cp >= 0x800 && (cp < 0xD800 || cp > 0xDFFF)) {
      *length = 3;
      return cp;
    }
  }
  if (a >= 0xF0 && a <= 0xF4 && IsCont(b) && IsCont(c) && IsCont(d)) {
    cp = (a & 0x07) << 18 | (b & 0x3F) << 12 | (c & 0x3F) << 6 | (d & 0x3F);
    if (cp >= 0x10000 && cp <= 0x10FFFF) {
      *length = 4;
      return cp;
    }
  }
  return -static_cast<int32_t>(a);  // a stray byte; AppendCodePoint writes it back
}

void AppendCodePoint(std::string* out, int32_t c) {
  if (c < 0) {
    out->push_back(static_cast<char>(-c));
  } else if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    if (DecodeAt(text, i, &n) < 0) return false;
  }
  return true;
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0, n = 0; i < text.size(); i += n, ++count) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      n = 1;
    } else {
      DecodeAt(text, i, &n);
    }
  }
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (size_t n = 0; index > 0 && at < text.size(); --index, at += n) DecodeAt(text, at, &n);
  return at;
}

std::vector<std::string_view> SplitCodePoints(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    DecodeAt(text, i, &n);
    out.push_back(text.substr(i, n));
  }
  return out;
}

bool IsSpace(int32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsAlpha(int32_t c) {
  return c >= 0 && InCategory(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
bool IsDecimal(int32_t c) {
  return c >= 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}
bool IsDigit(int32_t c) {
  return IsDecimal(c) || InRanges(c, std::begin(kDigits), std::end(kDigits));
}
bool IsNumeric(int32_t c) {
  return c >= 0 && (InCategory(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) ||
                    std::binary_search(std::begin(kHanNumbers), std::end(kHanNumbers), c));
}
bool IsAlnum(int32_t c) {
  return IsAlpha(c) || IsNumeric(c);
}
bool IsUpper(int32_t c) {
  return c >= 0 && (utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
                    InRanges(c, std::begin(kOtherUpper), std::end(kOtherUpper)));
}
bool IsLower(int32_t c) {
  return c >= 0 && (utf8proc_category(c) == UTF8PROC_CATEGORY_LL ||
                    InRanges(c, std::begin(kOtherLower), std::end(kOtherLower)));
}
bool IsTitle(int32_t c) {
  return c >= 0 && utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

bool IsPrintable(int32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  return !InCategory(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_CO) &&
         utf8proc_category(c) != UTF8PROC_CATEGORY_CN;
}

bool IsIdentifierChar(int32_t c) {
  if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  return IsAlnum(c) || InCategory(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC) ||
         utf8proc_category(c) == UTF8PROC_CATEGORY_PC;
}

std::string Upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0, n = 0; i < text.size(); i += n) AppendUpper(&out, DecodeAt(text, i, &n));
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> code_points = Decode(text);
  for (size_t i = 0; i < code_points.size(); ++i) AppendLower(&out, code_points, i);
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  std::vector<int32_t> code_points = Decode(text);
  bool in_word = false;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (in_word) {
      AppendLower(&out, code_points, i);
    } else {
      AppendTitle(&out, code_points[i]);
    }
    in_word = IsCased(code_points[i]);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  std::vector<int32_t> code_points = Decode(text);
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (i == 0) {
      AppendTitle(&out, code_points[i]);
    } else {
      AppendLower(&out, code_points, i);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  std::vector<int32_t> code_points = Decode(text);
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (IsUpper(code_points[i])) {
      AppendLower(&out, code_points, i);
    } else if (IsLower(code_points[i])) {
      AppendUpper(&out, code_points[i]);
    } else {
      AppendCodePoint(&out, code_points[i]);
    }
  }
  return out;
}

std::string_view Strip(std::string_view text, const std::string_view* chars, bool left,
                       bool right) {
  std::vector<int32_t> set;
  if (chars != nullptr) set = Decode(*chars);
  auto removed = [&](int32_t c) {
    return chars == nullptr ? IsSpace(c) : std::find(set.begin(), set.end(), c) != set.end();
  };
  size_t begin = 0;
  for (size_t n = 0; left && begin < text.size(); begin += n) {
    if (!removed(DecodeAt(text, begin, &n))) break;
  }
  size_t end = text.size();
  while (right && end > begin) {
    // Step back over one code point: at most three continuation bytes, and only if they decode
    // whole.
    size_t start = end - 1;
    for (size_t back = 1; back <= 4 && back <= end - begin; ++back) {
      size_t n = 0;
      if (DecodeAt(text, end - back, &n) >= 0 && n == back) {
        start = end - back;
        break;
      }
    }
    size_t n = 0;
    if (!removed(DecodeAt(text, start, &n))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep) {
  std::vector<std::string_view> out;
  size_t start = 0;
  for (size_t i = 0, n = 0; i < text.size();) {
    int32_t c = DecodeAt(text, i, &n);
    if (!IsLineEnd(c)) {
      i += n;
      continue;
    }
    size_t next = i + n;
    if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
    out.push_back(text.substr(start, (keep ? next : i) - start));
    start = i = next;
  }
  if (start < text.size()) out.push_back(text.substr(start));
  return out;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace lucid::jinja
