#include "text/normalizer.h"

#include <utility>

#include "text/unicode.h"

namespace lucid {
namespace {

using Kind = NormalizerStep::Kind;

// Calls keep(code, bytes) for every character; code is -1 for an invalid byte.
template <typename Visit>
void ForEachCharacter(std::string_view text, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    visit(c.code, text.substr(at, c.length));
    at += c.length;
  }
}

std::string RemoveMarks(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](int32_t code, std::string_view bytes) {
    if (!IsMark(code)) out += bytes;
  });
  return out;
}

std::string Strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const Utf8Char c = DecodeUtf8(text, 0);
    if (!IsWhitespace(c.code)) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 &&
           (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
      --start;
    const Utf8Char c = DecodeUtf8(text, start);
    if (start + c.length != text.size() || !IsWhitespace(c.code)) break;
    text.remove_suffix(c.length);
  }
  return std::string(text);
}

std::string ReplaceLiteral(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (true) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found == std::string_view::npos ? found : found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

std::string ReplaceRegex(std::string_view text, const Regex& regex, std::string_view to) {
  const Subject subject(text);
  Regex::Matcher matcher(regex);
  std::string out;
  size_t copied = 0;
  Match match;
  for (size_t from = 0; from <= text.size() && matcher.Next(subject.text(), from, &match);) {
    out += text.substr(copied, match.begin - copied);
    out += to;
    copied = match.end;
    from = match.end;
    if (match.end == match.begin) from += from < text.size() ? DecodeUtf8(text, from).length : 1;
  }
  out += text.substr(copied);
  return out;
}

bool IsCjkIdeograph(int32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// BERT's clean_text: controls vanish, every white space is one space.
std::string CleanText(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](int32_t code, std::string_view bytes) {
    const bool is_space = IsWhitespace(code);
    const bool kept_control = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == 0xFFFD || (!kept_control && IsControl(code))) return;
    if (is_space) {
      out.push_back(' ');
    } else {
      out += bytes;
    }
  });
  return out;
}

std::string SpaceIdeographs(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](int32_t code, std::string_view bytes) {
    const bool cjk = IsCjkIdeograph(code);
    if (cjk) out.push_back(' ');
    out += bytes;
    if (cjk) out.push_back(' ');
  });
  return out;
}

std::string ApplyBert(const NormalizerStep& step, std::string text) {
  if (step.clean_text) text = CleanText(text);
  if (step.handle_chinese_chars) text = SpaceIdeographs(text);
  if (step.strip_accents) {
    std::string out;
    ForEachCharacter(NormalizeUnicode(text, NormalForm::kNfd),
                     [&](int32_t code, std::string_view bytes) {
                       if (!IsNonspacingMark(code)) out += bytes;
                     });
    text = std::move(out);
  }
  if (step.lowercase) text = LowercaseUnicode(text);
  return text;
}

}  // namespace

Result<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer normalizer;
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step;
    step.spec = steps[i];
    if (step.spec.kind == Kind::kReplace && step.spec.pattern_is_regex) {
      auto regex = Regex::Compile(step.spec.pattern);
      if (!regex)
        return Err(ErrorCode::kInvalidFile, "normalizer step {}: bad pattern: {}", i,
                   regex.error().message);
      step.regex = std::move(*regex);
    }
    if (step.spec.kind == Kind::kPrecompiled) {
      auto map = Charsmap::Parse(step.spec.content);
      if (!map)
        return Err(ErrorCode::kInvalidFile, "normalizer step {}: {}", i, map.error().message);
      step.charsmap = std::move(*map);
    }
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

std::string Normalizer::ApplyStep(const Step& step, std::string text) {
  const NormalizerStep& spec = step.spec;
  switch (spec.kind) {
    case Kind::kNfc:
      return NormalizeUnicode(text, NormalForm::kNfc);
    case Kind::kNfd:
      return NormalizeUnicode(text, NormalForm::kNfd);
    case Kind::kNfkc:
      return NormalizeUnicode(text, NormalForm::kNfkc);
    case Kind::kNfkd:
      return NormalizeUnicode(text, NormalForm::kNfkd);
    case Kind::kLowercase:
      return LowercaseUnicode(text);
    case Kind::kStrip:
      return Strip(text, spec.strip_left, spec.strip_right);
    case Kind::kStripAccents:
      return RemoveMarks(text);
    case Kind::kPrepend:
      return text.empty() ? text : spec.content + text;
    case Kind::kReplace:
      return step.regex ? ReplaceRegex(text, *step.regex, spec.content)
                        : ReplaceLiteral(text, spec.pattern, spec.content);
    case Kind::kBertNormalizer:
      return ApplyBert(spec, std::move(text));
    case Kind::kPrecompiled:
      return step.charsmap->Apply(text);
  }
  return text;
}

std::string Normalizer::Apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = ApplyStep(step, std::move(out));
  return out;
}

}  // namespace lucid
