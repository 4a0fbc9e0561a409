#include "text/pre_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "text/pretokenize.h"

namespace lucid {
namespace {

// The contractions and tails that many patterns share.
#define LUCID_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LUCID_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr std::string_view kLlama3 = LUCID_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kQwen2 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kQwen35 = LUCID_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kMiniCpm5 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kSeedCoder =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" LUCID_SPACES;
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 = LUCID_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kExaoneMoe = LUCID_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// Words by letter case: o200k (GPT-4o) and what came after it.
#define LUCID_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LUCID_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LUCID_LEAD R"([^\r\n\p{L}\p{N}]?)"
constexpr std::string_view kO200k = LUCID_LEAD LUCID_UPPER
    "*" LUCID_LOWER "+" LUCID_CONTRACTIONS "?|" LUCID_LEAD LUCID_UPPER "+" LUCID_LOWER
    "*" LUCID_CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LUCID_SPACES;
constexpr std::string_view kYoutu = LUCID_LEAD LUCID_UPPER
    "*" LUCID_LOWER "+" LUCID_CONTRACTIONS "?|" LUCID_LEAD LUCID_UPPER "+" LUCID_LOWER
    "*" LUCID_CONTRACTIONS R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LUCID_SPACES;
constexpr std::string_view kTekken =
    LUCID_LEAD LUCID_UPPER "*" LUCID_LOWER "+|" LUCID_LEAD LUCID_UPPER "+" LUCID_LOWER
                           R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LUCID_SPACES;
// Kimi K2 keeps Han apart from other scripts.
#define LUCID_UPPER_NO_HAN R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define LUCID_LOWER_NO_HAN R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+|)" LUCID_LEAD LUCID_UPPER_NO_HAN "*" LUCID_LOWER_NO_HAN "+" LUCID_CONTRACTIONS
    "?|" LUCID_LEAD LUCID_UPPER_NO_HAN "+" LUCID_LOWER_NO_HAN "*" LUCID_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;

constexpr std::string_view kDeepSeek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kDeepSeekCjk = "[一-龥ࠀ-一가-퟿]+";
// The cased letters, as the DeepSeek LLM file lists them.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}-\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3})"
    R"(\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";

#undef LUCID_CONTRACTIONS
#undef LUCID_SPACES
#undef LUCID_UPPER
#undef LUCID_LOWER
#undef LUCID_LEAD
#undef LUCID_UPPER_NO_HAN
#undef LUCID_LOWER_NO_HAN

// Properties of a row besides its patterns.
enum : unsigned {
  kPlain = 0,
  kNfc = 1,         // the model's normalizer
  kWholeWords = 2,  // ignore_merges
  kBos = 4,         // add_bos where the file does not say
  kBosAndEos = 8,
};

struct Row {
  std::initializer_list<std::string_view> names;
  std::initializer_list<std::string_view> patterns;
  unsigned flags;
};

const Row kRows[] = {
    {{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0",
      "mellum", "jais", "trillion", "granite-docling", "exaone4"},
     {kGpt2Pattern},
     kPlain},
    {{"mpt", "olmo", "modern-bert"}, {kGpt2Pattern}, kNfc},
    {{"roberta-bpe", "jina-v1-en", "jina-v2-code"}, {kGpt2Pattern}, kBosAndEos},
    {{"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
     {R"(\p{N})", kGpt2Pattern},
     kPlain},
    {{"command-r"}, {R"(\p{N})", kGpt2Pattern}, kNfc},
    {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "jina-v5-nano"},
     {kLlama3},
     kWholeWords | kBos},
    {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlama3}, kPlain},
    {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"}, {kQwen2}, kNfc},
    {{"stablelm2", "hunyuan", "solar-open", "grok-2"}, {kQwen2}, kPlain},
    {{"qwen35"}, {kQwen35}, kNfc},
    {{"minicpm5"}, {R"(\p{N}{1,3})", kMiniCpm5}, kWholeWords},
    {{"seed-coder"}, {kSeedCoder}, kPlain},
    {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}, kPlain},
    {{"jais-2"}, {kJais2}, kPlain},
    {{"exaone-moe"}, {kExaoneMoe}, kPlain},
    {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kO200k}, kWholeWords},
    {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k}, kPlain},
    {{"youtu"},
     {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
      "ゟ゠-"
      "ヿ]"
      "+",
      kYoutu},
     kWholeWords},
    {{"tekken"}, {kTekken}, kWholeWords | kBos},
    {{"kimi-k2"}, {kKimiK2}, kPlain},
    {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeek3Words},
     kPlain},
    {{"deepseek-llm"},
     {R"([\r\n])", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kDeepSeekCjk,
      R"(\p{N})"},
     kPlain},
    {{"deepseek-coder"},
     {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, R"(\p{N})"},
     kPlain},
    {{"falcon"}, {kFalconPunctuation, kGpt2Pattern, "[0-9][0-9][0-9]"}, kPlain},
    {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}, kPlain},
    {{"viking"}, {kBloom, R"(\p{N})"}, kPlain},
    {{"default", ""},
     {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"},
     kPlain},
};

// A pattern with its line ends and tabs spelled as escapes: some files hold the characters.
std::string Escaped(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '\r') {
      out += "\\r";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out;
}

// The pattern whose matches a step isolates, "" if it splits nothing; nothing for other steps.
std::optional<std::string> PatternOf(const PreTokenizerStep& step) {
  using Kind = PreTokenizerStep::Kind;
  switch (step.kind) {
    case Kind::kSplit: {
      const bool isolates = step.behavior == SplitBehavior::kIsolated && !step.invert;
      // What does not match is removed: nothing, for patterns that match every character.
      const bool keeps_matches = step.behavior == SplitBehavior::kRemoved && step.invert;
      if (!step.pattern_is_regex || (!isolates && !keeps_matches)) return std::nullopt;
      return Escaped(step.pattern);
    }
    case Kind::kByteLevel:
      if (step.add_prefix_space) return std::nullopt;
      return std::string(step.use_regex ? kGpt2Pattern : "");
    case Kind::kDigits:
      return step.individual_digits ? R"(\p{N})" : R"(\p{N}+)";
    case Kind::kPunctuation:
      if (step.behavior != SplitBehavior::kContiguous) return std::nullopt;
      return std::string(kFalconPunctuation);
    case Kind::kMetaspace:
    case Kind::kWhitespace:
    case Kind::kWhitespaceSplit:
    case Kind::kBert:
      return std::nullopt;
  }
  return std::nullopt;
}

tl::unexpected<Error> NoName(std::string_view what) {
  return Err(ErrorCode::kUnsupported, "GGUF files have no name for the pre-tokenizer {}", what);
}

}  // namespace

Result<std::string_view> FindPreName(const VocabSpec& spec) {
  bool nfc = false;
  for (const NormalizerStep& step : spec.normalizer) {
    if (step.kind != NormalizerStep::Kind::kNfc || nfc) {
      return NoName("of a tokenizer with this normalizer; only NFC is known there");
    }
    nfc = true;
  }
  std::vector<std::string> patterns;
  for (const PreTokenizerStep& step : spec.pre_tokenizer) {
    const std::optional<std::string> pattern = PatternOf(step);
    if (!pattern) return NoName("with steps other than Split, Digits and ByteLevel");
    if (!pattern->empty()) patterns.push_back(*pattern);
  }
  const unsigned flags = (nfc ? kNfc : kPlain) | (spec.ignore_merges ? kWholeWords : kPlain);
  for (const Row& row : kRows) {
    if ((row.flags & (kNfc | kWholeWords)) == flags && std::ranges::equal(row.patterns, patterns)) {
      return *row.names.begin();
    }
  }
  return NoName(fmt::format("{}{}that splits by '{}'", nfc ? "with NFC " : "",
                            spec.ignore_merges ? "of whole words first " : "",
                            fmt::join(patterns, "' and '")));
}

Status ApplyPreName(std::string_view name, VocabSpec& spec) {
  spec.pre_name = name;
  for (const Row& row : kRows) {
    if (std::find(row.names.begin(), row.names.end(), name) == row.names.end()) continue;
    if ((row.flags & kNfc) != 0) spec.normalizer.emplace_back().kind = NormalizerStep::Kind::kNfc;
    for (const std::string_view pattern : row.patterns) {
      PreTokenizerStep step;
      step.pattern = pattern;
      spec.pre_tokenizer.push_back(std::move(step));
    }
    spec.byte_level = true;
    spec.ignore_merges = (row.flags & kWholeWords) != 0;
    spec.add_bos = (row.flags & (kBos | kBosAndEos)) != 0;
    spec.add_eos = (row.flags & kBosAndEos) != 0;
    return {};
  }
  return Err(ErrorCode::kUnsupported,
             "tokenizer.ggml.pre \"{}\" is a pre-tokenizer that this build does not know", name);
}

}  // namespace lucid
