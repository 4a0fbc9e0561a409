// See jinja_wrap.h.
#include "text/jinja_wrap.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

bool IsWrapSpace(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

bool IsWordChar(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  size_t n = 0;
  int32_t c = DecodeAt(text, at, &n);
  return c == '_' || IsAlnum(c);
}

size_t Step(std::string_view text, size_t at) {
  size_t n = 0;
  DecodeAt(text, at, &n);
  return at + n;
}

// Whether the character before byte `at` is a letter (not a digit or underscore).
bool LetterBefore(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t start = at - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  size_t n = 0;
  return IsAlpha(DecodeAt(text, start, &n));
}

bool LetterAt(std::string_view text, size_t at) {
  size_t n = 0;
  return at < text.size() && IsAlpha(DecodeAt(text, at, &n));
}

// The places where a word may be broken after a hyphen: between letters, two of them before the
// hyphen.
bool BreaksAfter(std::string_view word, size_t hyphen) {
  if (word[hyphen] != '-' || !LetterBefore(word, hyphen)) return false;
  size_t before = hyphen - 1;
  while (before > 0 && (static_cast<unsigned char>(word[before]) & 0xC0) == 0x80) --before;
  bool two_before = LetterBefore(word, before);
  if (!two_before && before >= 2 && word[before - 1] == '-')
    two_before = LetterBefore(word, before - 1);
  if (!two_before || !LetterAt(word, hyphen + 1)) return false;
  size_t second = Step(word, hyphen + 1);
  return LetterAt(word, second) ||
         (second < word.size() && word[second] == '-' && LetterAt(word, second + 1));
}

void SplitWord(std::string_view word, bool hyphens, std::vector<std::string_view>* chunks) {
  size_t start = 0;
  for (size_t i = 0; hyphens && i < word.size(); ++i) {
    if (word[i] != '-') continue;
    size_t run = word.find_first_not_of('-', i);
    if (run == std::string_view::npos) run = word.size();
    // Two or more hyphens between word characters are a dash, a chunk of their own.
    if (run - i >= 2 && i > start && run < word.size() && IsWordChar(word, run)) {
      chunks->emplace_back(word.substr(start, i - start));
      chunks->emplace_back(word.substr(i, run - i));
      start = run;
    } else if (run - i == 1 && BreaksAfter(word, i)) {
      chunks->emplace_back(word.substr(start, i + 1 - start));
      start = i + 1;
    }
    i = run - 1;
  }
  if (start < word.size()) chunks->emplace_back(word.substr(start));
}

std::vector<std::string_view> Chunks(std::string_view line, bool hyphens) {
  std::vector<std::string_view> chunks;
  for (size_t i = 0; i < line.size();) {
    size_t end = i;
    bool space = IsWrapSpace(line[i]);
    while (end < line.size() && IsWrapSpace(line[end]) == space) ++end;
    if (space) {
      chunks.emplace_back(line.substr(i, end - i));
    } else {
      SplitWord(line.substr(i, end - i), hyphens, &chunks);
    }
    i = end;
  }
  return chunks;
}

bool AllSpace(std::string_view text) {
  return Strip(text, nullptr, true, true).empty();
}

// The first `room` code points of a word that fits no line, or up to the last hyphen among them.
std::string_view LongWordHead(std::string_view word, uint64_t room, bool hyphens) {
  std::string_view head = word.substr(0, ByteOffset(word, room));
  if (!hyphens || head.size() == word.size()) return head;
  size_t hyphen = head.rfind('-');
  bool useful = hyphen != std::string_view::npos && head.find_first_not_of('-') < hyphen;
  return useful ? head.substr(0, hyphen + 1) : head;
}

}  // namespace

std::vector<std::string> WrapText(std::string_view line, uint64_t width, bool break_long_words,
                                  bool break_on_hyphens) {
  // What is left to place, the next chunk last. Views, since a long word is cut piece by piece.
  struct Chunk {
    std::string_view text;
    uint64_t length;  // in code points
  };
  std::vector<Chunk> chunks;
  for (std::string_view text : Chunks(line, break_on_hyphens)) {
    chunks.push_back({text, CountCodePoints(text)});
  }
  std::reverse(chunks.begin(), chunks.end());
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    std::vector<std::string_view> current;
    uint64_t length = 0;
    if (!lines.empty() && AllSpace(chunks.back().text)) chunks.pop_back();
    while (!chunks.empty() && length + chunks.back().length <= width) {
      length += chunks.back().length;
      current.push_back(chunks.back().text);
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().length > width) {
      Chunk& word = chunks.back();
      if (break_long_words) {
        std::string_view head =
            LongWordHead(word.text, std::max<uint64_t>(width - length, 1), break_on_hyphens);
        current.push_back(head);
        word.text.remove_prefix(head.size());
        word.length -= CountCodePoints(head);
        if (word.text.empty()) chunks.pop_back();
      } else if (current.empty()) {
        current.push_back(word.text);
        chunks.pop_back();
      }
    }
    if (!current.empty() && AllSpace(current.back())) current.pop_back();
    if (current.empty()) continue;
    std::string text;
    for (std::string_view chunk : current) text += chunk;
    lines.push_back(std::move(text));
  }
  return lines;
}

std::string StripTags(std::string_view text) {
  std::string value(text);
  auto erase_all = [&](std::string_view open, std::string_view close) {
    size_t start = value.find(open);
    std::string out;
    size_t at = 0;
    while (start != std::string::npos) {
      size_t end = value.find(close, start);
      if (end == std::string::npos) break;
      out.append(value, at, start - at);
      at = end + close.size();
      start = value.find(open, at);
    }
    value = out + value.substr(at);
  };
  erase_all("<!--", "-->");
  erase_all("<", ">");
  std::string joined;
  size_t begin = 0;
  auto add_word = [&](size_t end) {
    if (end == begin) return;
    if (!joined.empty()) joined.push_back(' ');
    joined.append(value, begin, end - begin);
  };
  for (size_t i = 0, n = 0; i < value.size(); i += n) {
    if (!IsSpace(DecodeAt(value, i, &n))) continue;
    add_word(i);
    begin = i + n;
  }
  add_word(value.size());
  constexpr std::pair<std::string_view, char> kEntities[] = {{"&lt;", '<'},   {"&gt;", '>'},
                                                             {"&#39;", '\''}, {"&#34;", '"'},
                                                             {"&quot;", '"'}, {"&amp;", '&'}};
  std::string out;
  for (size_t i = 0; i < joined.size();) {
    const auto* hit = std::find_if(
        std::begin(kEntities), std::end(kEntities),
        [&](const auto& row) { return joined.compare(i, row.first.size(), row.first) == 0; });
    if (hit == std::end(kEntities)) {
      out.push_back(joined[i++]);
    } else {
      out.push_back(hit->second);
      i += hit->first.size();
    }
  }
  return out;
}

bool ParseInt(std::string_view text, Int base, Int* value) {
  text = Strip(text, nullptr, true, true);
  bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (base != 0 && (base < 2 || base > 36)) return false;
  auto prefix = [&](char letter, Int of_base) {
    if (text.size() < 3 || text[0] != '0' || (text[1] | 32) != letter) return false;
    if (base != 0 && base != of_base) return false;
    base = of_base;
    text.remove_prefix(2);
    if (text[0] == '_') text.remove_prefix(1);
    return true;
  };
  if (!prefix('x', 16) && !prefix('o', 8) && !prefix('b', 2) && base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' &&
        text.find_first_not_of("0_") != std::string_view::npos) {
      return false;
    }
  }
  Int result = 0;
  bool digit_before = false;
  for (char c : text) {
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    int digit = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                     : 99;
    if (digit >= base) return false;
    if (result > kIntLimit / 64) Fail(ErrorKind::kLimit, "int: the number is too large");
    result = result * base + digit;
    digit_before = true;
  }
  if (!digit_before) return false;
  *value = negative ? -result : result;
  return true;
}

bool ParseFloat(std::string_view text, double* value) {
  text = Strip(text, nullptr, true, true);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    bool between = i > 0 && i + 1 < text.size() && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                   text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '_' && between) continue;
    digits.push_back(text[i]);
  }
  if (!digits.empty() && digits[0] == '+' && digits.find_first_of("+-", 1) != 1) digits.erase(0, 1);
  std::string lower = Lower(digits);
  size_t sign = !lower.empty() && lower[0] == '-' ? 1 : 0;
  std::string_view word = std::string_view(lower).substr(sign);
  if (word == "inf" || word == "infinity" || word == "nan") {
    *value = word == "nan" ? NAN : HUGE_VAL;
    if (sign == 1) *value = -*value;
    return true;
  }
  if (digits.find_first_not_of("0123456789+-.eE") != std::string::npos || digits.empty())
    return false;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value);
  if (end != digits.data() + digits.size()) return false;
  if (error == std::errc::result_out_of_range) {
    bool tiny = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
    *value = tiny ? 0.0 : HUGE_VAL;
    if (sign == 1) *value = -*value;
    return true;
  }
  return error == std::errc();
}

double RoundHalfEven(double value, int digits) {
  if (!std::isfinite(value)) return value;
  // Decimal digits decide, not the scaled binary value: format with that many and read back.
  if (digits >= 0) {
    char buffer[700];
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    double result = value;
    ParseFloat(buffer, &result);
    return result;
  }
  double scale = std::pow(10.0, -digits);
  double scaled = value / scale;
  if (std::fabs(scaled) < 0.5) return std::copysign(0.0, value);
  return std::nearbyint(scaled) * scale;
}

Int RoundInt(Int value, int digits) {
  if (digits >= 0) return value;
  Int scale = 1;
  for (int i = 0; i < -digits; ++i) {
    if (scale > kIntLimit / 100) return 0;
    scale *= 10;
  }
  Int quotient = value / scale;
  Int rest = value % scale;
  Int magnitude = rest < 0 ? -rest : rest;
  bool up = magnitude * 2 > scale || (magnitude * 2 == scale && quotient % 2 != 0);
  return (quotient + (up ? (value < 0 ? -1 : 1) : 0)) * scale;
}

}  // namespace lucid::jinja
