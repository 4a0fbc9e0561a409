#include "text/pre_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/pretokenize.h"

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Split(const char* name, std::string_view text) {
  VocabSpec spec;
  const Status status = ApplyPreName(name, spec);
  if (!status) return {status.error().message};
  const auto pre = PreTokenizer::Create(spec.pre_tokenizer);
  if (!pre) return {pre.error().message};
  PreTokenized pieces(text);
  pre->Apply(true, pieces);
  std::vector<std::string> out;
  for (const PieceRange& piece : pieces.pieces) out.emplace_back(pieces.At(piece));
  return out;
}

TEST(PreNames, EveryNameHasPatternsThatCoverAText) {
  const std::string text =
      "Hello  World's 12345 x²\r\n\n 你好，世界 \t'LL !?foo_bar 한국어 ไทย \U0001F600";
  for (const char* name : {"default",       "gpt-2",          "phi-2",          "mpt",
                           "olmo",          "starcoder",      "refact",         "smollm",
                           "codeshell",     "exaone",         "minerva-7b",     "command-r",
                           "llama3",        "llama-bpe",      "dbrx",           "smaug-bpe",
                           "glm4",          "chatglm-bpe",    "qwen2",          "deepseek-r1-qwen",
                           "stablelm2",     "hunyuan",        "grok-2",         "qwen35",
                           "minicpm5",      "seed-coder",     "bailingmoe",     "jais-2",
                           "exaone-moe",    "gpt-4o",         "llama4",         "tiny_aya",
                           "youtu",         "tekken",         "kimi-k2",        "deepseek-v3",
                           "hunyuan-dense", "deepseek-llm",   "deepseek-coder", "falcon",
                           "bloom",         "poro-chat",      "viking",         "roberta-bpe",
                           "jina-v2-code",  "granite-docling"}) {
    std::string joined;
    const auto pieces = Split(name, text);
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_EQ(joined, text) << name;
    EXPECT_GT(pieces.size(), 5U) << name;
  }
}

TEST(PreNames, PatternsDifferWhereTheModelsDo) {
  EXPECT_THAT(Split("gpt-2", " it's 1234"), ElementsAre(" it", "'s", " 1234"));
  EXPECT_THAT(Split("smollm", "a 12"), ElementsAre("a", " ", "1", "2"));
  EXPECT_THAT(Split("llama-bpe", "a 12345"), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(Split("qwen2", "a 12"), ElementsAre("a", " ", "1", "2"));
  EXPECT_THAT(Split("gpt-4o", "fooBar's"), ElementsAre("foo", "Bar's"));
  EXPECT_THAT(Split("tekken", "fooBar12"), ElementsAre("foo", "Bar", "1", "2"));
  EXPECT_THAT(Split("deepseek-v3", "漢字kana 1234"), ElementsAre("漢字", "kana", " ", "123", "4"));
  EXPECT_THAT(Split("kimi-k2", "漢字ab"), ElementsAre("漢字", "ab"));
  EXPECT_THAT(Split("falcon", "a, 1234"), ElementsAre("a", ",", " ", "123", "4"));
}

TEST(PreNames, AnUnknownNameIsAnErrorThatNamesIt) {
  VocabSpec spec;
  const Status status = ApplyPreName("brand-new", spec);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(status.error().message, HasSubstr("brand-new"));
}

}  // namespace
}  // namespace lucid
