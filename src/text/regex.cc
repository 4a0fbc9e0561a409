#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "text/unicode.h"

namespace lucid {
namespace {

constexpr size_t kMaxPattern = 64 * 1024;
// Bounds for one search. A linear pattern needs a few steps per byte of a 1 MB run; only a pattern
// that backtracks exponentially comes near them.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;
constexpr uint32_t kParensLimit = 100;

struct StandIn {
  int32_t first, last;  // code points
  int32_t code;         // one of the same general category and UTF-8 length
};

// Code points assigned in Unicode 15.0 to 16.0, which Oniguruma knows and PCRE2 10.42 (14.0) does
// not, and U+180E, which only PCRE2 counts as a space.
constexpr StandIn kStandIns[] = {
    {0x897, 0x897, 0x900},       {0xCF3, 0xCF3, 0x903},       {0xECE, 0xECE, 0x900},
    {0x180E, 0x180E, 0x200B},    {0x1B4E, 0x1B4F, 0x1B5A},    {0x1B7F, 0x1B7F, 0x1B5A},
    {0x1C89, 0x1C89, 0x1E00},    {0x1C8A, 0x1C8A, 0x1E01},    {0x2427, 0x2429, 0x2400},
    {0x2FFC, 0x2FFF, 0x2400},    {0x31E4, 0x31E5, 0x2400},    {0x31EF, 0x31EF, 0x2400},
    {0xA7CB, 0xA7CC, 0x1E00},    {0xA7CD, 0xA7CD, 0x1E01},    {0xA7DA, 0xA7DA, 0x1E00},
    {0xA7DB, 0xA7DB, 0x1E01},    {0xA7DC, 0xA7DC, 0x1E00},    {0x105C0, 0x105F3, 0x10000},
    {0x10D40, 0x10D49, 0x104A0}, {0x10D4A, 0x10D4D, 0x10000}, {0x10D4E, 0x10D4E, 0x10780},
    {0x10D4F, 0x10D4F, 0x10000}, {0x10D50, 0x10D65, 0x10400}, {0x10D69, 0x10D6D, 0x101FD},
    {0x10D6E, 0x10D6E, 0x10EAD}, {0x10D6F, 0x10D6F, 0x10780}, {0x10D70, 0x10D85, 0x10428},
    {0x10D8E, 0x10D8F, 0x1D6C1}, {0x10EC2, 0x10EC4, 0x10000}, {0x10EFC, 0x10EFF, 0x101FD},
    {0x1123F, 0x11240, 0x10000}, {0x11241, 0x11241, 0x101FD}, {0x11380, 0x11389, 0x10000},
    {0x1138B, 0x1138B, 0x10000}, {0x1138E, 0x1138E, 0x10000}, {0x11390, 0x113B5, 0x10000},
    {0x113B7, 0x113B7, 0x10000}, {0x113B8, 0x113BA, 0x11000}, {0x113BB, 0x113C0, 0x101FD},
    {0x113C2, 0x113C2, 0x11000}, {0x113C5, 0x113C5, 0x11000}, {0x113C7, 0x113CA, 0x11000},
    {0x113CC, 0x113CD, 0x11000}, {0x113CE, 0x113CE, 0x101FD}, {0x113CF, 0x113CF, 0x11000},
    {0x113D0, 0x113D0, 0x101FD}, {0x113D1, 0x113D1, 0x10000}, {0x113D2, 0x113D2, 0x101FD},
    {0x113D3, 0x113D3, 0x10000}, {0x113D4, 0x113D5, 0x10100}, {0x113D7, 0x113D8, 0x10100},
    {0x113E1, 0x113E2, 0x101FD}, {0x116D0, 0x116E3, 0x104A0}, {0x1171E, 0x1171E, 0x11000},
    {0x11B00, 0x11B09, 0x10100}, {0x11BC0, 0x11BE0, 0x10000}, {0x11BE1, 0x11BE1, 0x10100},
    {0x11BF0, 0x11BF9, 0x104A0}, {0x11F00, 0x11F01, 0x101FD}, {0x11F02, 0x11F02, 0x10000},
    {0x11F03, 0x11F03, 0x11000}, {0x11F04, 0x11F10, 0x10000}, {0x11F12, 0x11F33, 0x10000},
    {0x11F34, 0x11F35, 0x11000}, {0x11F36, 0x11F3A, 0x101FD}, {0x11F3E, 0x11F3F, 0x11000},
    {0x11F40, 0x11F40, 0x101FD}, {0x11F41, 0x11F41, 0x11000}, {0x11F42, 0x11F42, 0x101FD},
    {0x11F43, 0x11F4F, 0x10100}, {0x11F50, 0x11F59, 0x104A0}, {0x11F5A, 0x11F5A, 0x101FD},
    {0x1342F, 0x1342F, 0x10000}, {0x13439, 0x1343F, 0xE0001}, {0x13440, 0x13440, 0x101FD},
    {0x13441, 0x13446, 0x10000}, {0x13447, 0x13455, 0x101FD}, {0x13460, 0x143FA, 0x10000},
    {0x16100, 0x1611D, 0x10000}, {0x1611E, 0x16129, 0x101FD}, {0x1612A, 0x1612C, 0x11000},
    {0x1612D, 0x1612F, 0x101FD}, {0x16130, 0x16139, 0x104A0}, {0x16D40, 0x16D42, 0x10780},
    {0x16D43, 0x16D6A, 0x10000}, {0x16D6B, 0x16D6C, 0x10780}, {0x16D6D, 0x16D6F, 0x10100},
    {0x16D70, 0x16D79, 0x104A0}, {0x18CFF, 0x18CFF, 0x10000}, {0x1B132, 0x1B132, 0x10000},
    {0x1B155, 0x1B155, 0x10000}, {0x1CC00, 0x1CCEF, 0x1F000}, {0x1CCF0, 0x1CCF9, 0x104A0},
    {0x1CD00, 0x1CEB3, 0x1F000}, {0x1D2C0, 0x1D2D3, 0x10107}, {0x1DF25, 0x1DF2A, 0x10428},
    {0x1E030, 0x1E06D, 0x10780}, {0x1E08F, 0x1E08F, 0x101FD}, {0x1E4D0, 0x1E4EA, 0x10000},
    {0x1E4EB, 0x1E4EB, 0x10780}, {0x1E4EC, 0x1E4EF, 0x101FD}, {0x1E4F0, 0x1E4F9, 0x104A0},
    {0x1E5D0, 0x1E5ED, 0x10000}, {0x1E5EE, 0x1E5EF, 0x101FD}, {0x1E5F0, 0x1E5F0, 0x10000},
    {0x1E5F1, 0x1E5FA, 0x104A0}, {0x1E5FF, 0x1E5FF, 0x10100}, {0x1F6DC, 0x1F6DC, 0x1F000},
    {0x1F774, 0x1F776, 0x1F000}, {0x1F77B, 0x1F77F, 0x1F000}, {0x1F7D9, 0x1F7D9, 0x1F000},
    {0x1F8B2, 0x1F8BB, 0x1F000}, {0x1F8C0, 0x1F8C1, 0x1F000}, {0x1FA75, 0x1FA77, 0x1F000},
    {0x1FA87, 0x1FA89, 0x1F000}, {0x1FA8F, 0x1FA8F, 0x1F000}, {0x1FAAD, 0x1FAAF, 0x1F000},
    {0x1FABB, 0x1FABF, 0x1F000}, {0x1FAC6, 0x1FAC6, 0x1F000}, {0x1FACE, 0x1FACF, 0x1F000},
    {0x1FADA, 0x1FADC, 0x1F000}, {0x1FADF, 0x1FADF, 0x1F000}, {0x1FAE8, 0x1FAE9, 0x1F000},
    {0x1FAF7, 0x1FAF8, 0x1F000}, {0x1FBCB, 0x1FBEF, 0x1F000}, {0x2B739, 0x2B739, 0x20000},
    {0x2EBF0, 0x2EE5D, 0x20000}, {0x31350, 0x323AF, 0x20000},
};

int32_t StandInFor(int32_t code) {
  const auto* row = std::upper_bound(std::begin(kStandIns), std::end(kStandIns), code,
                                     [](int32_t c, const StandIn& s) { return c < s.first; });
  if (row == std::begin(kStandIns)) return code;
  --row;
  return code <= row->last ? row->code : code;
}

struct CompileContext {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CompileContext() {
    LUCID_CHECK(context != nullptr, "out of memory");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, kParensLimit);
  }
  ~CompileContext() { pcre2_compile_context_free(context); }
};

PCRE2_SPTR Units(const char* text) {
  return reinterpret_cast<PCRE2_SPTR>(text);
}

}  // namespace

Subject::Subject(std::string_view text) : text_(text) {
  if (IsAscii(text)) return;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, at);
    const int32_t stand_in = c.code < 0x800 ? c.code : StandInFor(c.code);
    if (c.code < 0 || stand_in != c.code) {
      if (owned_.empty()) owned_.assign(text);
      if (c.code < 0) {
        owned_[at] = '\x01';
      } else {
        std::string encoded;
        AppendUtf8(stand_in, encoded);
        owned_.replace(at, encoded.size(), encoded);
      }
    }
    at += c.length;
  }
}

struct Regex::Impl {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool jit = false;

  ~Impl() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return Err(ErrorCode::kInvalidFile, "the pattern is {} bytes long; the limit is {}",
               pattern.size(), kMaxPattern);
  }
  const std::string translated = OnigurumaToPcre(pattern);
  const CompileContext compile;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  // `^` and `$` are line anchors in Oniguruma's default syntax.
  impl->code =
      pcre2_compile(Units(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, compile.context);
  if (impl->code == nullptr) {
    std::array<PCRE2_UCHAR, 160> reason{};
    pcre2_get_error_message(error, reason.data(), reason.size());
    return Err(ErrorCode::kInvalidFile, "{}", reinterpret_cast<const char*>(reason.data()));
  }
  impl->context = pcre2_match_context_create(nullptr);
  LUCID_CHECK(impl->context != nullptr, "out of memory");
  pcre2_set_match_limit(impl->context, kMatchLimit);
  pcre2_set_heap_limit(impl->context, kHeapLimitKiB);
  impl->jit = pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(impl));
}

Regex::Matcher::Matcher(const Regex& regex)
    : regex_(*regex.impl_),
      data_(pcre2_match_data_create_from_pattern(regex.impl_->code, nullptr)) {
  LUCID_CHECK(data_ != nullptr, "out of memory");
}

Regex::Matcher::~Matcher() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
}

bool Regex::Matcher::Next(std::string_view part, size_t from, Match* match) {
  auto* data = static_cast<pcre2_match_data*>(data_);
  const char* text = part.empty() ? "" : part.data();
  // Subject made the text valid UTF-8; checking it at every search would be quadratic.
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (regex_.jit) {
    rc = pcre2_jit_match(regex_.code, Units(text), part.size(), from, PCRE2_NO_UTF_CHECK, data,
                         regex_.context);
  }
  // JIT works on 32 KiB of stack; what needs more runs in the interpreter, on the heap.
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(regex_.code, Units(text), part.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     data, regex_.context);
  }
  if (rc < 0) return false;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  // \K in a look-ahead could set the start after the end.
  *match = {std::min<size_t>(ends[0], ends[1]), ends[1]};
  return match->begin >= from || match->end > from;
}

}  // namespace lucid
