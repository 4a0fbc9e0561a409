#include "text/pre_names.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "text/pretokenize.h"

namespace lucid {
namespace {

// The contractions and tails that many patterns share.
#define LUCID_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LUCID_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr std::string_view kLlama3 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kQwen2 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kQwen35 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kMiniCpm5 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;
constexpr std::string_view kSeedCoder =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" LUCID_SPACES;
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kExaoneMoe =
    LUCID_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

// Words by letter case: o200k (GPT-4o) and what came after it.
#define LUCID_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LUCID_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LUCID_LEAD R"([^\r\n\p{L}\p{N}]?)"
constexpr std::string_view kO200k = LUCID_LEAD LUCID_UPPER "*" LUCID_LOWER "+" LUCID_CONTRACTIONS "?|" LUCID_LEAD
    LUCID_UPPER "+" LUCID_LOWER "*" LUCID_CONTRACTIONS R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LUCID_SPACES;
constexpr std::string_view kYoutu = LUCID_LEAD LUCID_UPPER "*" LUCID_LOWER "+" LUCID_CONTRACTIONS "?|" LUCID_LEAD
    LUCID_UPPER "+" LUCID_LOWER "*" LUCID_CONTRACTIONS R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LUCID_SPACES;
constexpr std::string_view kTekken = LUCID_LEAD LUCID_UPPER "*" LUCID_LOWER "+|" LUCID_LEAD LUCID_UPPER
    "+" LUCID_LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LUCID_SPACES;
// Kimi K2 keeps Han apart from other scripts.
#define LUCID_UPPER_NO_HAN R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define LUCID_LOWER_NO_HAN R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
constexpr std::string_view kKimiK2 = R"([\p{Han}]+|)" LUCID_LEAD LUCID_UPPER_NO_HAN "*" LUCID_LOWER_NO_HAN
    "+" LUCID_CONTRACTIONS "?|" LUCID_LEAD LUCID_UPPER_NO_HAN "+" LUCID_LOWER_NO_HAN "*" LUCID_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" LUCID_SPACES;

constexpr std::string_view kDeepSeek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    LUCID_SPACES;
constexpr std::string_view kDeepSeekCjk = "[一-龥ࠀ-一가-퟿]+";
// The cased letters, as the DeepSeek LLM file lists them.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
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
  kNfc = 1,           // the model's normalizer
  kWholeWords = 2,    // ignore_merges
  kBos = 4,           // add_bos where the file does not say
  kBosAndEos = 8,
};

struct Row {
  std::initializer_list<std::string_view> names;
  std::initializer_list<std::string_view> patterns;
  unsigned flags;
};

const Row kRows[] = {
    {{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "jais",
      "trillion", "granite-docling", "exaone4"},
     {kGpt2Pattern}, kPlain},
    {{"mpt", "olmo", "modern-bert"}, {kGpt2Pattern}, kNfc},
    {{"roberta-bpe", "jina-v1-en", "jina-v2-code"}, {kGpt2Pattern}, kBosAndEos},
    {{"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
     {R"(\p{N})", kGpt2Pattern}, kPlain},
    {{"command-r"}, {R"(\p{N})", kGpt2Pattern}, kNfc},
    {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
     {kLlama3}, kWholeWords | kBos},
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
    {{"youtu"}, {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", kYoutu}, kWholeWords},
    {{"tekken"}, {kTekken}, kWholeWords | kBos},
    {{"kimi-k2"}, {kKimiK2}, kPlain},
    {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeek3Words}, kPlain},
    {{"deepseek-llm"},
     {R"([\r\n])", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kDeepSeekCjk, R"(\p{N})"}, kPlain},
    {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, R"(\p{N})"}, kPlain},
    {{"falcon"}, {kFalconPunctuation, kGpt2Pattern, "[0-9][0-9][0-9]"}, kPlain},
    {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}, kPlain},
    {{"viking"}, {kBloom, R"(\p{N})"}, kPlain},
    {{"default", ""}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}, kPlain},
};

}  // namespace

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
  return Err(ErrorCode::kUnsupported, "tokenizer.ggml.pre \"{}\" is a pre-tokenizer that this build does not know", name);
}

}  // namespace lucid
