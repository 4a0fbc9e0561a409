#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/mmap_file.h"
#include "text/byte_alphabet.h"
#include "text/detokenizer.h"
#include "text/hf_tokenizer.h"
#include "text/xz.h"

namespace lucid {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
const std::string kShared = LUCID_SHARED_DIR;

// Processor time, so that a busy machine fails no limit.
double SecondsSince(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::vector<Json> ReadCases(const std::string& name) {
  std::ifstream in(kShared + "/cases/" + name);
  std::vector<Json> cases;
  for (std::string line; std::getline(in, line);) cases.push_back(Json::parse(line));
  return cases;
}

// One of shared/tokenizers, loaded once.
const Tokenizer& Published(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> all;
  std::unique_ptr<Tokenizer>& slot = all[name];
  if (!slot) {
    const auto file = MmapFile::Open(kShared + "/tokenizers/" + name + "/tokenizer.json.xz");
    const auto json = DecompressXz(file->bytes(), size_t{1} << 30);
    slot = std::move(*Tokenizer::Create(std::move(*ParseHfTokenizer(*json))));
  }
  return *slot;
}

class PublishedTokenizers : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kShared + "/tokenizers"))
      GTEST_SKIP() << "no reference files in " << kShared;
  }
};

EncodeOptions Mode(const std::string& name) {
  EncodeOptions options;
  options.add_special = false;
  options.added_tokens = name == "parse_special"     ? AddedTokenMode::kParseSpecial
                         : name == "special_as_text" ? AddedTokenMode::kSpecialAsText
                                                     : AddedTokenMode::kNone;
  return options;
}

TEST_F(PublishedTokenizers, KnownQwenStrings) {
  const Tokenizer& qwen = Published("qwen2.5");
  EXPECT_THAT(qwen.Encode("你好，今天我们继续学习 AI Infra。"),
              ElementsAre(108386, 3837, 114854, 100640, 100134, 15235, 14921, 956, 1773));
  EXPECT_THAT(qwen.Encode("Today we continue learning AI infrastructure."),
              ElementsAre(15364, 582, 3060, 6832, 15235, 13737, 13));
  EXPECT_THAT(qwen.Encode("def hello(name): return f\"hello {name}\""),
              ElementsAre(750, 23811, 3153, 1648, 470, 282, 1, 14990, 314, 606, 9863));
  EXPECT_THAT(qwen.Encode("写一句关于秋天的诗。"),
              ElementsAre(61443, 104670, 101888, 109127, 9370, 100045, 1773));
  EXPECT_THAT(qwen.Encode("AI Infra 🚀🔥"), ElementsAre(15469, 14921, 956, 11162, 248, 222, 144670));
}

TEST_F(PublishedTokenizers, EveryCaseInItsMode) {
  const auto cases = ReadCases("tokenizer.jsonl");
  ASSERT_GE(cases.size(), 468U);
  for (const Json& one : cases) {
    const Tokenizer& tokenizer = Published(one["tokenizer"]);
    const auto text = one["text"].get<std::string>();
    const auto ids = tokenizer.Encode(text, Mode(one["mode"]));
    EXPECT_EQ(Json(ids), one["ids"]) << one["id"];
    if (one.value("decoded_equals", "") == "text") {
      EXPECT_EQ(tokenizer.Decode(ids), text) << one["id"];
    }
  }
}

TEST_F(PublishedTokenizers, LongRunsInTime) {
  for (const Json& one : ReadCases("tokenizer_long.jsonl")) {
    std::string text;
    for (int i = 0; i < one["repeat"].get<int>(); ++i) text += one["unit"].get<std::string>();
    const auto start = std::clock();
    const Json ids = Published(one["tokenizer"]).Encode(text, Mode(one["mode"]));
    EXPECT_LT(SecondsSince(start), one["limit_seconds"].get<double>()) << one["id"];
    ASSERT_EQ(ids.size(), one["n_ids"].get<size_t>()) << one["id"];
    for (size_t i = 0; i < one["head"].size(); ++i) EXPECT_EQ(ids[i], one["head"][i]) << one["id"];
    for (size_t i = 0; i < one["tail"].size(); ++i) {
      EXPECT_EQ(ids[ids.size() - one["tail"].size() + i], one["tail"][i]) << one["id"];
    }
  }
}

TEST_F(PublishedTokenizers, JsonTextInput) {
  for (const Json& one : ReadCases("json_text_input.jsonl")) {
    if (!one.contains("accept_text") || !one["accept_text"].is_string()) continue;
    for (const auto& [name, ids] : one["ids"].items()) {
      EXPECT_EQ(Json(Published(name).Encode(one["accept_text"].get<std::string>(),
                                            Mode("special_as_text"))),
                ids)
          << one["id"];
    }
  }
}

// A megabyte of one kind of character: one word, or a regex run, that must stay near linear.
TEST_F(PublishedTokenizers, MegabyteRunsTakeLessThanASecond) {
  for (const char* unit : {"a", "A", " ", "\n", "\r\n", "1", "-", "字", "é", "e\u0301", "aB", " a",
                           "\u0e01", "\xFF", "<|"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    for (const char* name : {"qwen2.5", "deepseek-v3", "gpt-oss"}) {
      const Tokenizer& tokenizer = Published(name);  // loading is not part of it
      const auto start = std::clock();
      const auto ids = tokenizer.Encode(text);
      const double seconds = SecondsSince(start);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      EXPECT_LT(seconds, 1.0) << name << " " << unit;
#else
      EXPECT_LT(seconds, 30.0) << name << " " << unit;
#endif
      // NFC makes one character of e and its accent.
      if (std::string(unit) == "e\u0301") continue;
      EXPECT_EQ(tokenizer.Decode(ids), text) << name << " " << unit;
    }
  }
}

TEST_F(PublishedTokenizers, InvalidUtf8ComesBackAsItWentIn) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) {
      const char* parts[] = {
          "a", " ",  "\xF0\x9F\x98",     "\x80", "\xC3", "\xED\xA0\x80", "\xE4\xBD\xA0", "\xFF",
          "1", "\n", "\xF5\x80\x80\x80", "'s"};
      text += parts[random() % std::size(parts)];
    }
    for (const char* name : {"qwen2.5", "deepseek-v3", "gpt-oss"}) {
      const auto ids = Published(name).Encode(text);
      EXPECT_EQ(Published(name).Decode(ids), text);
    }
  }
}

TEST_F(PublishedTokenizers, StreamShowsWholeCharactersAsSoonAsTheyAreCertain) {
  for (const Json& one : ReadCases("detok_stream.jsonl")) {
    const Tokenizer& tokenizer = Published(one["tokenizer"]);
    const auto ids = one["ids"].get<std::vector<TokenId>>();
    Detokenizer stream(tokenizer, /*skip_special=*/false);
    std::string shown;
    const Json& visible = one["max_chars_visible_after_each_token"];
    for (size_t i = 0; i < ids.size(); ++i) {
      shown += stream.Add(ids[i]);
      size_t n_chars = 0;
      for (const char c : shown) n_chars += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
      EXPECT_EQ(n_chars, visible[i].get<size_t>()) << one["id"] << " after token " << i;
      EXPECT_EQ(shown, one["text"].get<std::string>().substr(0, shown.size())) << one["id"];
    }
    shown += stream.Finish();
    EXPECT_EQ(shown, tokenizer.Decode(ids)) << one["id"];
  }
}

TEST_F(PublishedTokenizers, AnyIdsStreamToTheirDecodedText) {
  std::mt19937 random(11);
  for (const char* name : {"qwen2.5", "gpt-oss"}) {
    const Tokenizer& tokenizer = Published(name);
    for (int i = 0; i < 500; ++i) {
      std::vector<TokenId> ids(random() % 40);
      // The first ids are the lone bytes, which make broken characters likely.
      for (TokenId& id : ids)
        id = static_cast<TokenId>(random() % 2 == 0
                                      ? random() % 256
                                      : random() % static_cast<unsigned>(tokenizer.n_tokens()));
      Detokenizer stream(tokenizer, false);
      std::string shown;
      for (const TokenId id : ids) shown += stream.Add(id);
      EXPECT_EQ(shown + stream.Finish(), tokenizer.Decode(ids));
    }
  }
}

// A byte-level vocabulary: 256 bytes, then the given pieces.
VocabSpec ByteLevelSpec() {
  VocabSpec spec;
  spec.byte_level = true;
  for (const std::string& piece : ByteAlphabet()) spec.tokens.push_back(piece);
  spec.kinds.assign(256, TokenKind::kNormal);
  return spec;
}

AddedToken Added(std::string content, bool special) {
  AddedToken token;
  token.content = std::move(content);
  token.special = special;
  return token;
}

void AddToken(VocabSpec& spec, AddedToken token) {
  token.id = static_cast<TokenId>(spec.tokens.size());
  spec.tokens.push_back(token.content);
  spec.kinds.push_back(token.special ? TokenKind::kControl : TokenKind::kUserDefined);
  spec.added.push_back(std::move(token));
}

TEST(Detokenizer, BytesThatCannotBecomeACharacterAppearAtOnce) {
  const auto tokenizer = Tokenizer::Create(ByteLevelSpec());
  ASSERT_TRUE(tokenizer);
  Detokenizer stream(**tokenizer);
  const auto add = [&](int byte) { return stream.Add(byte); };
  EXPECT_EQ(add(0x80), "\x80");  // a continuation with no beginning
  EXPECT_EQ(add(0xFF), "\xFF");
  EXPECT_EQ(add(0xF0), "");
  EXPECT_EQ(add(0x9F), "");
  EXPECT_EQ(add('a'),
            "\xF0\x9F"
            "a");  // the beginning came to nothing
  EXPECT_EQ(add(0xED), "");
  EXPECT_EQ(add(0xA0), "\xED\xA0");  // a surrogate: never a character
  EXPECT_EQ(add(0xE4), "");
  EXPECT_EQ(add(0xBD), "");
  EXPECT_EQ(add(0xA0), "\xE4\xBD\xA0");
  EXPECT_EQ(add(0xC3), "");
  EXPECT_EQ(stream.Finish(), "\xC3");
}

TEST(Tokenizer, LongestAddedTokenWinsAndRefusedMatchesArePassedOver) {
  VocabSpec spec = ByteLevelSpec();
  AddToken(spec, Added("<a>", true));
  AddToken(spec, Added("<a><b>", true));
  AddedToken word = Added("w", false);
  word.single_word = true;
  AddToken(spec, word);
  AddedToken left = Added("<l>", false);
  left.lstrip = true;
  AddToken(spec, left);
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->Encode("<a><b><a>"), ElementsAre(257, 256));
  EXPECT_THAT((*tokenizer)->Encode("w xw w1 w"),
              ElementsAre(258, ' ', 'x', 'w', ' ', 'w', '1', ' ', 258));
  EXPECT_THAT((*tokenizer)->Encode("x \n<l>"), ElementsAre('x', 259));
}

TEST(Tokenizer, RefusesDataThatContradictsItself) {
  VocabSpec spec = ByteLevelSpec();
  spec.bos_id = 256;
  EXPECT_THAT(Tokenizer::Create(spec).error().message, HasSubstr("bos id 256"));
  spec = ByteLevelSpec();
  spec.kinds.pop_back();
  EXPECT_THAT(Tokenizer::Create(spec).error().message, HasSubstr("255 token types for 256 tokens"));
  spec = ByteLevelSpec();
  spec.merges.emplace_back("a", "xyz");
  EXPECT_THAT(Tokenizer::Create(spec).error().message, HasSubstr("xyz"));
  spec = ByteLevelSpec();
  spec.model = TokenModel::kSpmBpe;
  EXPECT_THAT(Tokenizer::Create(spec).error().message, HasSubstr("0 scores"));
  EXPECT_THAT(Tokenizer::Create(VocabSpec{}).error().message, HasSubstr("empty"));
}

// SentencePiece with byte fallback, as GGUF files of Llama have it.
VocabSpec SpmSpec() {
  VocabSpec spec;
  spec.model = TokenModel::kSpmBpe;
  const auto add = [&](std::string piece, float score, TokenKind kind) {
    spec.tokens.push_back(std::move(piece));
    spec.scores.push_back(score);
    spec.kinds.push_back(kind);
  };
  add("<unk>", 0, TokenKind::kUnknown);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, TokenKind::kByte);
  float score = 0;
  // 257: ▁  258: a  259: b  260: ▁a  261: ab  262: ▁ab  263: ▁▁
  for (const char* piece : {"▁", "a", "b", "▁a", "ab", "▁ab", "▁▁"})
    add(piece, --score, TokenKind::kNormal);
  spec.byte_fallback = true;
  spec.unk_id = 0;
  NormalizerStep prepend;
  prepend.kind = NormalizerStep::Kind::kPrepend;
  prepend.content = "▁";
  NormalizerStep replace;
  replace.kind = NormalizerStep::Kind::kReplace;
  replace.pattern = " ";
  replace.content = "▁";
  spec.normalizer = {prepend, replace};
  spec.decoder.metaspace = spec.decoder.strip_leading_space = true;
  return spec;
}

TEST(Tokenizer, SpmMergesByScoreAndFallsBackToBytes) {
  const auto tokenizer = Tokenizer::Create(SpmSpec());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->Encode("ab"), ElementsAre(262));
  EXPECT_THAT((*tokenizer)->Encode("aab"),
              ElementsAre(260, 261));  // ▁a has the better score, then ab is left
  EXPECT_THAT((*tokenizer)->Encode("é"), ElementsAre(257, 1 + 0xC3, 1 + 0xA9));
  EXPECT_THAT((*tokenizer)->Encode("\xC3"), ElementsAre(257, 1 + 0xC3));
  EXPECT_THAT((*tokenizer)->Encode("<0x0A>").size(), 7U);  // text that spells a byte is text
  EXPECT_THAT((*tokenizer)->Encode(""), ElementsAre());
}

TEST(Tokenizer, SpmTextsComeBackAndStreamAlike) {
  const auto tokenizer = Tokenizer::Create(SpmSpec());
  ASSERT_TRUE(tokenizer);
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) {
      const char* parts[] = {"a", "b", " ", "  ", "é", "🦙", "\n", "ab", "\x00\x01", "\xFF"};
      text += parts[random() % std::size(parts)];
    }
    const auto ids = (*tokenizer)->Encode(text);
    EXPECT_EQ((*tokenizer)->Decode(ids), text);
    Detokenizer stream(**tokenizer);
    std::string shown;
    for (const TokenId id : ids) shown += stream.Add(id);
    EXPECT_EQ(shown + stream.Finish(), text);
  }
}

TEST(Detokenizer, ContinuingATextKeepsTheLeadingSpace) {
  const auto tokenizer = Tokenizer::Create(SpmSpec());
  ASSERT_TRUE(tokenizer);
  Detokenizer fresh(**tokenizer);
  EXPECT_EQ(fresh.Add(260), "a");
  EXPECT_EQ(fresh.Add(260), " a");
  Detokenizer continued(**tokenizer, true, /*at_start=*/false);
  EXPECT_EQ(continued.Add(260), " a");
}

TEST(Tokenizer, SpmRunsAreNearLinear) {
  const auto tokenizer = Tokenizer::Create(SpmSpec());
  ASSERT_TRUE(tokenizer);
  const auto start = std::clock();
  EXPECT_GT((*tokenizer)->Encode(std::string(1'000'000, 'a')).size(), 1000U);
  EXPECT_GT((*tokenizer)->Encode(std::string(1'000'000, ' ')).size(), 1000U);
  EXPECT_LT(SecondsSince(start), 20.0);
}

}  // namespace
}  // namespace lucid
