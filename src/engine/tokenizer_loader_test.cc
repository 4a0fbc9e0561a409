#include "engine/tokenizer_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "format/gguf_writer.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kShared = LUCID_SHARED_DIR;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("lucid_tokenizer_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string At(const std::string& name) const { return (path_ / name).string(); }
  std::string Put(const std::string& name, const std::string& text) const {
    std::ofstream(At(name), std::ios::binary) << text;
    return At(name);
  }

 private:
  fs::path path_;
};

GgufValue Strings(const std::vector<std::string>& list) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = GgufType::kString;
  value.value = std::vector<std::string_view>(list.begin(), list.end());
  return value;
}

GgufValue Floats(const std::vector<double>& list) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = GgufType::kFloat32;
  value.value = list;
  return value;
}

GgufValue Ints(const std::vector<int64_t>& list) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = GgufType::kInt32;
  value.value = list;
  return value;
}

std::string Write(GgufWriter& writer, const std::string& path) {
  EXPECT_TRUE(writer.AddString("general.architecture", "llama"));
  EXPECT_TRUE(writer.Begin(path));
  EXPECT_TRUE(writer.Finish());
  return path;
}

std::string RandomText(std::mt19937& random) {
  const char* parts[] = {"the ", "fox",     " ",          "  ",      "\n",   "\r\n",
                         "1",    "23",      "é",          "e\u0301", "你好", "🙂",
                         "'s",   "<|bos|>", "<|im_end|>", "<|eos|>", "\t",   "A",
                         "!",    "\u0001",  "\u00a0",     "한",      "\xFF"};
  std::string text;
  for (size_t n = random() % 20; n > 0; --n) text += parts[random() % std::size(parts)];
  return text;
}

void ExpectSameIds(const Tokenizer& a, const Tokenizer& b, int n) {
  std::mt19937 random(5);
  for (int i = 0; i < n; ++i) {
    const std::string text = RandomText(random);
    for (const auto mode :
         {AddedTokenMode::kParseSpecial, AddedTokenMode::kSpecialAsText, AddedTokenMode::kNone}) {
      EncodeOptions options;
      options.add_special = false;
      options.added_tokens = mode;
      const auto ids = a.Encode(text, options);
      ASSERT_EQ(ids, b.Encode(text, options)) << text;
      ASSERT_EQ(a.Decode(ids), b.Decode(ids)) << text;
    }
  }
}

TEST(TokenizerLoader, GgufAndJsonOfOneModelGiveTheSameIds) {
  const std::string gguf = kShared + "/fixtures/gguf/models/stories_llama.q8_0.gguf";
  if (!fs::exists(gguf)) GTEST_SKIP() << "no reference files in " << kShared;
  const auto a = LoadTokenizer(gguf);
  const auto b = LoadTokenizer(kShared + "/fixtures/trained/stories_llama");
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(b) << b.error().message;
  ExpectSameIds(*a->tokenizer, *b->tokenizer, 2000);
  EXPECT_THAT(a->tokenizer->spec().eog_ids, ElementsAre(1));
  EXPECT_EQ(a->tokenizer->Encode("a").front(), 0);  // the GGUF asks for BOS
}

// A published vocabulary of 151,669 entries through a GGUF file and back.
TEST(TokenizerLoader, QwenThroughGgufGivesTheSameIds) {
  const std::string folder = kShared + "/tokenizers/qwen2.5";
  if (!fs::exists(folder)) GTEST_SKIP() << "no reference files in " << kShared;
  const auto json = LoadTokenizer(folder);
  ASSERT_TRUE(json) << json.error().message;
  const VocabSpec& spec = json->tokenizer->spec();
  std::vector<std::string> merges;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto [left, right] = spec.merges[i];
    merges.push_back(std::string(left).append(" ").append(right));
  }
  std::vector<int64_t> kinds;
  for (const TokenKind kind : spec.kinds) kinds.push_back(static_cast<int64_t>(kind));
  GgufWriter writer;
  ASSERT_TRUE(writer.AddString("tokenizer.ggml.model", "gpt2"));
  ASSERT_TRUE(writer.AddString("tokenizer.ggml.pre", "qwen2"));
  ASSERT_TRUE(writer.Add("tokenizer.ggml.tokens", Strings(spec.tokens)));
  ASSERT_TRUE(writer.Add("tokenizer.ggml.token_type", Ints(kinds)));
  ASSERT_TRUE(writer.Add("tokenizer.ggml.merges", Strings(merges)));
  ASSERT_TRUE(writer.AddUint32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(spec.eos_id)));
  ASSERT_TRUE(writer.AddString("tokenizer.chat_template", "{{ messages }}"));
  const Folder out;
  const auto gguf = LoadTokenizer(Write(writer, out.At("qwen.gguf")));
  ASSERT_TRUE(gguf) << gguf.error().message;
  ExpectSameIds(*gguf->tokenizer, *json->tokenizer, 2000);
  EXPECT_EQ(gguf->chat_template, "{{ messages }}");
  EXPECT_TRUE(gguf->tokenizer->IsEndOfGeneration(json->tokenizer->Find("<|im_end|>")));
  EXPECT_TRUE(gguf->tokenizer->IsEndOfGeneration(json->tokenizer->Find("<|endoftext|>")));
}

TEST(TokenizerLoader, RawPromptsGetBosWhereTheModelAsks) {
  std::ifstream in(kShared + "/cases/bos.jsonl");
  if (!in) GTEST_SKIP() << "no reference files in " << kShared;
  int seen = 0;
  for (std::string line; std::getline(in, line);) {
    const Json one = Json::parse(line);
    if (one["endpoint"] != "completions") continue;
    const auto loaded =
        LoadTokenizer(kShared + "/tokenizers/" + one["tokenizer"].get<std::string>());
    ASSERT_TRUE(loaded) << loaded.error().message;
    const Json ids = loaded->tokenizer->Encode(one["prompt"].get<std::string>());
    if (one.contains("expect_ids_any")) {
      EXPECT_THAT(one["expect_ids_any"], Contains(ids)) << one["id"];
    } else {
      EXPECT_EQ(ids, one["expect_ids"]) << one["id"];
    }
    ++seen;
  }
  EXPECT_GE(seen, 5);
}

GgufWriter SpmWriter() {
  GgufWriter writer;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> kinds = {2, 3, 3};
  std::vector<double> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    kinds.push_back(6);
    scores.push_back(0);
  }
  double score = 0;
  for (const char* piece : {"▁", "h", "i", "▁h", "▁hi", "<|im_end|>"}) {
    tokens.push_back(piece);
    kinds.push_back(1);
    scores.push_back(--score);
  }
  EXPECT_TRUE(writer.AddString("tokenizer.ggml.model", "llama"));
  EXPECT_TRUE(writer.Add("tokenizer.ggml.tokens", Strings(tokens)));
  EXPECT_TRUE(writer.Add("tokenizer.ggml.token_type", Ints(kinds)));
  EXPECT_TRUE(writer.Add("tokenizer.ggml.scores", Floats(scores)));
  EXPECT_TRUE(writer.AddUint32("tokenizer.ggml.bos_token_id", 1));
  EXPECT_TRUE(writer.AddUint32("tokenizer.ggml.eos_token_id", 2));
  return writer;
}

TEST(TokenizerLoader, SentencePieceFromGguf) {
  GgufWriter writer = SpmWriter();
  const Folder out;
  const auto loaded = LoadTokenizer(Write(writer, out.At("spm.gguf")));
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Tokenizer& tokenizer = *loaded->tokenizer;
  EXPECT_THAT(tokenizer.Encode("hi"), ElementsAre(1, 263));
  // Each text after a special token begins with a space of its own.
  EXPECT_THAT(tokenizer.Encode("hi</s>hi"), ElementsAre(1, 263, 2, 263));
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("hi  hi"), true), "hi  hi");
  // The converter called the end of a turn ordinary; a model that writes it must stop.
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(264));
  EXPECT_EQ(tokenizer.Kind(264), TokenKind::kControl);
}

TEST(TokenizerLoader, SentencePieceWithoutSpacePrefix) {
  GgufWriter writer = SpmWriter();
  ASSERT_TRUE(writer.AddBool("tokenizer.ggml.add_space_prefix", false));
  ASSERT_TRUE(writer.AddBool("tokenizer.ggml.add_bos_token", false));
  const Folder out;
  const auto loaded = LoadTokenizer(Write(writer, out.At("spm.gguf")));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(loaded->tokenizer->Encode("hi hi"), ElementsAre(260, 261, 263));
  EXPECT_EQ(loaded->tokenizer->Decode(std::vector<TokenId>{263}), " hi");
}

TEST(TokenizerLoader, WordPieceAndUnigramFromGguf) {
  GgufWriter bert;
  ASSERT_TRUE(bert.AddString("tokenizer.ggml.model", "bert"));
  ASSERT_TRUE(bert.Add("tokenizer.ggml.tokens",
                       Strings({"[UNK]", "[CLS]", "[SEP]", "▁un", "related", "▁!"})));
  ASSERT_TRUE(bert.Add("tokenizer.ggml.token_type", Ints({3, 3, 3, 1, 1, 1})));
  ASSERT_TRUE(bert.AddUint32("tokenizer.ggml.unknown_token_id", 0));
  ASSERT_TRUE(bert.AddUint32("tokenizer.ggml.bos_token_id", 1));
  ASSERT_TRUE(bert.AddUint32("tokenizer.ggml.seperator_token_id", 2));
  const Folder out;
  auto loaded = LoadTokenizer(Write(bert, out.At("bert.gguf")));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(loaded->tokenizer->Encode("Unrelated! xyz"), ElementsAre(1, 3, 4, 5, 0, 2));

  GgufWriter t5;
  ASSERT_TRUE(t5.AddString("tokenizer.ggml.model", "t5"));
  ASSERT_TRUE(t5.Add("tokenizer.ggml.tokens",
                     Strings({"<pad>", "</s>", "<unk>", "▁", "a", "b", "▁ab", "ab"})));
  ASSERT_TRUE(t5.Add("tokenizer.ggml.token_type", Ints({3, 3, 2, 1, 1, 1, 1, 1})));
  ASSERT_TRUE(t5.Add("tokenizer.ggml.scores", Floats({0, 0, 0, -2, -3, -3, -4, -4})));
  ASSERT_TRUE(t5.AddUint32("tokenizer.ggml.eos_token_id", 1));
  loaded = LoadTokenizer(Write(t5, out.At("t5.gguf")));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(loaded->tokenizer->Encode("  ab   abzz "), ElementsAre(6, 6, 2, 1));
}

TEST(TokenizerLoader, ErrorsNameTheKey) {
  const Folder out;
  const auto message = [&](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer = SpmWriter();
    change(writer);
    const auto loaded = LoadTokenizer(Write(writer, out.At("bad.gguf")));
    return loaded ? std::string("no error") : loaded.error().message;
  };
  EXPECT_THAT(message([](GgufWriter& w) { (void)w.AddString("tokenizer.ggml.model", "none"); }),
              HasSubstr("holds no tokenizer"));
  EXPECT_THAT(message([](GgufWriter& w) { (void)w.AddString("tokenizer.ggml.model", "rwkv"); }),
              HasSubstr("tokenizer.ggml.model \"rwkv\""));
  EXPECT_THAT(message([](GgufWriter& w) { (void)w.AddUint32("tokenizer.ggml.tokens", 1); }),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(message([](GgufWriter& w) { (void)w.Add("tokenizer.ggml.scores", Floats({1})); }),
              HasSubstr("tokenizer.ggml.scores has 1 values"));
  EXPECT_THAT(
      message([](GgufWriter& w) { (void)w.AddUint32("tokenizer.ggml.bos_token_id", 9999); }),
      HasSubstr("tokenizer.ggml.bos_token_id is 9999"));
  EXPECT_THAT(
      message([](GgufWriter& w) { (void)w.AddString("tokenizer.ggml.add_bos_token", "yes"); }),
      HasSubstr("tokenizer.ggml.add_bos_token"));
  EXPECT_THAT(message([](GgufWriter& w) {
                (void)w.AddString("tokenizer.ggml.model", "gpt2");
                (void)w.Add("tokenizer.ggml.merges", Strings({"h i"}));
                (void)w.AddString("tokenizer.ggml.pre", "brand-new");
              }),
              HasSubstr("tokenizer.ggml.pre \"brand-new\""));
  EXPECT_THAT(message([](GgufWriter& w) {
                (void)w.AddString("tokenizer.ggml.model", "gpt2");
                (void)w.Add("tokenizer.ggml.merges", Strings({"hi"}));
              }),
              HasSubstr("tokenizer.ggml.merges[0]"));
}

TEST(TokenizerLoader, FolderFilesAreReadTogether) {
  const Folder out;
  out.Put(
      "tokenizer.json",
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"added_tokens":[)"
      R"({"id":2,"content":"<s>","special":true},{"id":3,"content":"<|eot_id|>","special":true}]})");
  out.Put("tokenizer_config.json",
          R"({"bos_token":"<s>","add_bos_token":true,"chat_template":"old"})");
  out.Put("generation_config.json", R"({"eos_token_id":[1]})");
  out.Put("chat_template.jinja", "new");
  for (const std::string& path :
       {out.At(""), out.At("tokenizer.json"), out.At("model.safetensors")}) {
    const auto loaded = LoadTokenizer(path);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_THAT(loaded->tokenizer->Encode("ab"), ElementsAre(2, 0, 1));
    EXPECT_EQ(loaded->chat_template, "new");
    EXPECT_THAT(loaded->tokenizer->spec().eog_ids, ElementsAre(1, 3));
  }
  out.Put("tokenizer_config.json", R"({"bos_token":5})");
  EXPECT_THAT(LoadTokenizer(out.At("")).error().message, HasSubstr("bos_token"));
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  out.Put("tokenizer_config.json", R"({"chat_template":)" + deep + "}");
  EXPECT_THAT(LoadTokenizer(out.At("")).error().message,
              HasSubstr("tokenizer_config.json: it is nested deeper than 64 levels"));
  out.Put("tokenizer_config.json", "{}");
  out.Put("generation_config.json", R"({"eos_token_id":)" + deep + "}");
  EXPECT_THAT(LoadTokenizer(out.At("")).error().message,
              HasSubstr("generation_config.json: it is nested deeper than 64 levels"));
  out.Put("tokenizer.json", "{");
  EXPECT_THAT(LoadTokenizer(out.At("")).error().message, HasSubstr("not valid JSON"));
  EXPECT_EQ(LoadTokenizer(out.At("absent.json")).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lucid
