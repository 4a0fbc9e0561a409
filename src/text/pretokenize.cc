#include "text/pretokenize.h"

#include <utility>

#include "text/unicode.h"

namespace lucid {
namespace {

using Kind = PreTokenizerStep::Kind;

struct Span {
  uint32_t begin = 0, end = 0;
  bool is_match = false;
};

// Every byte of the part in order, in spans that match or do not.
using Spans = std::vector<Span>;

// Turns the spans of one piece into pieces, as NormalizedString::split of `tokenizers` does.
void AppendPieces(const Spans& spans, SplitBehavior behavior, uint32_t offset,
                  std::vector<PieceRange>& out) {
  const auto add = [&](uint32_t begin, uint32_t end) {
    if (begin < end) out.push_back({offset + begin, offset + end});
  };
  const size_t n = spans.size();
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Span& s : spans) add(s.begin, s.end);
      return;
    case SplitBehavior::kRemoved:
      for (const Span& s : spans) {
        if (!s.is_match) add(s.begin, s.end);
      }
      return;
    case SplitBehavior::kContiguous:
      for (size_t i = 0; i < n;) {
        size_t j = i + 1;
        while (j < n && spans[j].is_match == spans[i].is_match) ++j;
        add(spans[i].begin, spans[j - 1].end);
        i = j;
      }
      return;
    case SplitBehavior::kMergedWithPrevious:
      for (size_t i = 0; i < n; ++i) {
        const bool takes_next = !spans[i].is_match && i + 1 < n && spans[i + 1].is_match;
        add(spans[i].begin, takes_next ? spans[i + 1].end : spans[i].end);
        if (takes_next) ++i;
      }
      return;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = 0; i < n; ++i) {
        const bool takes_next = spans[i].is_match && i + 1 < n && !spans[i + 1].is_match;
        add(spans[i].begin, takes_next ? spans[i + 1].end : spans[i].end);
        if (takes_next) ++i;
      }
      return;
  }
}

// Appends [begin, end) as a span; gaps between matches are spans as well.
class SpanList {
 public:
  explicit SpanList(Spans& spans) : spans_(spans) { spans_.clear(); }
  void Match(size_t begin, size_t end) {
    Gap(begin);
    spans_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), true});
    done_ = end;
  }
  void Gap(size_t until) {
    if (done_ < until)
      spans_.push_back({static_cast<uint32_t>(done_), static_cast<uint32_t>(until), false});
    done_ = until;
  }

 private:
  Spans& spans_;
  size_t done_ = 0;
};

void SplitByRegex(Regex::Matcher& matcher, std::string_view part, Spans& spans) {
  SpanList list(spans);
  Match match;
  for (size_t from = 0; from <= part.size() && matcher.Next(part, from, &match);) {
    list.Match(match.begin, match.end);
    from = match.end;
    if (match.begin == match.end) from += from < part.size() ? DecodeUtf8(part, from).length : 1;
  }
  list.Gap(part.size());
}

template <typename IsMatch>
void SplitByCharacter(std::string_view part, const IsMatch& is_match, Spans& spans) {
  SpanList list(spans);
  for (size_t at = 0; at < part.size();) {
    const Utf8Char c = DecodeUtf8(part, at);
    if (is_match(c.code)) list.Match(at, at + c.length);
    at += c.length;
  }
  list.Gap(part.size());
}

void SplitByLiteral(std::string_view part, std::string_view literal, Spans& spans) {
  SpanList list(spans);
  for (size_t at = part.find(literal); at != std::string_view::npos && !literal.empty();
       at = part.find(literal, at + literal.size())) {
    list.Match(at, at + literal.size());
  }
  list.Gap(part.size());
}

// Runs of word characters and of what is neither word nor space; the spaces are the matches. This
// is
// `\w+|[^\w\s]+` by the wider `\w` of Rust, which counts joiners.
void SplitIntoWords(std::string_view part, Spans& spans) {
  const auto class_of = [](int32_t code) {
    return IsWordChar(code) ? 1 : IsWhitespace(code) ? 0 : 2;
  };
  SpanList list(spans);
  int previous = -1;
  for (size_t at = 0; at < part.size();) {
    const Utf8Char c = DecodeUtf8(part, at);
    const int now = class_of(c.code);
    if (now != previous) list.Gap(at);
    if (now == 0) list.Match(at, at + c.length);
    previous = now;
    at += c.length;
  }
  list.Gap(part.size());
}

bool IsAsciiPunctuation(int32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}
bool IsAnyPunctuation(int32_t c) {
  return IsAsciiPunctuation(c) || IsPunctuation(c);
}

// Cuts every piece with cut(part, spans) and the behavior.
template <typename Cut>
void CutPieces(PreTokenized& text, SplitBehavior behavior, bool invert, const Cut& cut) {
  std::vector<PieceRange> out;
  out.reserve(text.pieces.size());
  Spans spans;
  for (const PieceRange& piece : text.pieces) {
    cut(piece, spans);
    if (invert) {
      for (Span& s : spans) s.is_match = !s.is_match;
    }
    AppendPieces(spans, behavior, piece.begin, out);
  }
  text.pieces = std::move(out);
}

void CutByRegex(PreTokenized& text, const Regex& regex, SplitBehavior behavior, bool invert) {
  const Subject subject(text.text());
  Regex::Matcher matcher(regex);
  CutPieces(text, behavior, invert, [&](const PieceRange& piece, Spans& spans) {
    SplitByRegex(matcher, subject.text().substr(piece.begin, piece.end - piece.begin), spans);
  });
}

template <typename IsMatch>
void CutByCharacter(PreTokenized& text, SplitBehavior behavior, const IsMatch& is_match) {
  CutPieces(text, behavior, false, [&](const PieceRange& piece, Spans& spans) {
    SplitByCharacter(text.At(piece), is_match, spans);
  });
}

// Rewrites every piece with rewrite(index, piece, out).
template <typename Rewrite>
void RewritePieces(PreTokenized& text, const Rewrite& rewrite) {
  std::string out;
  out.reserve(text.text().size() + 16);
  for (size_t i = 0; i < text.pieces.size(); ++i) {
    const auto begin = static_cast<uint32_t>(out.size());
    rewrite(i, text.At(text.pieces[i]), out);
    text.pieces[i] = {begin, static_cast<uint32_t>(out.size())};
  }
  text.Replace(std::move(out));
}

void ApplyMetaspace(const PreTokenizerStep& spec, bool at_start, PreTokenized& text) {
  const std::string_view mark =
      spec.pattern.empty() ? std::string_view("\xE2\x96\x81") : spec.pattern;
  // Only the piece at offset 0 of the input is the first one.
  const bool starts_at_zero = at_start && !text.pieces.empty() && text.pieces.front().begin == 0;
  RewritePieces(text, [&](size_t index, std::string_view piece, std::string& out) {
    const bool prepend =
        spec.prepend_scheme == PreTokenizerStep::Prepend::kAlways ||
        (spec.prepend_scheme == PreTokenizerStep::Prepend::kFirst && index == 0 && starts_at_zero);
    if (prepend && !piece.starts_with(' ') && !piece.starts_with(mark)) out += mark;
    for (const char c : piece) {
      if (c == ' ') {
        out += mark;
      } else {
        out.push_back(c);
      }
    }
  });
  if (spec.split) {
    CutPieces(text, SplitBehavior::kMergedWithNext, false,
              [&](const PieceRange& piece, Spans& spans) {
                SplitByLiteral(text.At(piece), mark, spans);
              });
  }
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps) {
  PreTokenizer pre;
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step;
    step.spec = steps[i];
    std::string_view pattern;
    if (step.spec.kind == Kind::kSplit && step.spec.pattern_is_regex) pattern = step.spec.pattern;
    if (step.spec.kind == Kind::kByteLevel && step.spec.use_regex) pattern = kGpt2Pattern;
    if (!pattern.empty()) {
      auto regex = Regex::Compile(pattern);
      if (!regex) {
        return Err(ErrorCode::kInvalidFile, "pre_tokenizer step {}: bad pattern: {}", i,
                   regex.error().message);
      }
      step.regex = std::move(*regex);
    }
    pre.steps_.push_back(std::move(step));
  }
  return pre;
}

void PreTokenizer::Apply(bool at_start, PreTokenized& text) const {
  for (const Step& step : steps_) {
    const PreTokenizerStep& spec = step.spec;
    switch (spec.kind) {
      case Kind::kSplit:
        if (step.regex) {
          CutByRegex(text, *step.regex, spec.behavior, spec.invert);
        } else {
          CutPieces(text, spec.behavior, spec.invert, [&](const PieceRange& piece, Spans& spans) {
            SplitByLiteral(text.At(piece), spec.pattern, spans);
          });
        }
        break;
      case Kind::kByteLevel:
        if (spec.add_prefix_space) {
          RewritePieces(text, [](size_t, std::string_view piece, std::string& out) {
            if (!piece.starts_with(' ')) out.push_back(' ');
            out += piece;
          });
        }
        if (step.regex) CutByRegex(text, *step.regex, SplitBehavior::kIsolated, false);
        break;
      case Kind::kMetaspace:
        ApplyMetaspace(spec, at_start, text);
        break;
      case Kind::kDigits:
        CutByCharacter(
            text, spec.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
            IsNumeric);
        break;
      case Kind::kPunctuation:
        CutByCharacter(text, spec.behavior, IsAnyPunctuation);
        break;
      case Kind::kWhitespace:
        CutPieces(text, SplitBehavior::kRemoved, false, [&](const PieceRange& piece, Spans& spans) {
          SplitIntoWords(text.At(piece), spans);
        });
        break;
      case Kind::kWhitespaceSplit:
        CutByCharacter(text, SplitBehavior::kRemoved, IsWhitespace);
        break;
      case Kind::kBert:
        CutByCharacter(text, SplitBehavior::kRemoved, IsWhitespace);
        CutByCharacter(text, SplitBehavior::kIsolated, IsAnyPunctuation);
        break;
    }
  }
}

}  // namespace lucid
