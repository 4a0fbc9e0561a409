// The scan of a tokenizer.json's lists against a JSON parser, on whole and on damaged texts.
#include "text/hf_json_lists.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace lucid {
namespace {

using Json = nlohmann::json;

const std::string kText =
    R"({"version":"1.0","added_tokens":[{"id":9,"content":"a \" } ] {"}],"model":{"type":"BPE",)"
    R"("unk_token":null, "vocab" : {"a":0,"\u0120b":1,"\ud83d\ude00":2,"é":3 ,"\\\"/\n":40},)"
    R"("merges":["a \u0120b", ["a","x y"], "é é"],"fuse_unk":false},"decoder":{"model":{"vocab":{}}}})";

// True if the lists were taken; then they are compared with what a parser makes of the text.
bool TakenAndEqual(const std::string& text) {
  HfTokenizerJson lists;
  std::string rest;
  if (!TakeModelLists(text, lists, rest)) return false;
  const Json others = Json::parse(rest, nullptr, /*allow_exceptions=*/false);
  if (others.is_discarded()) return false;
  Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text;
  if (json.is_discarded()) return false;
  Json vocab = Json::object();
  for (const auto& [piece, id] : lists.vocab) vocab[piece] = id;
  EXPECT_EQ(vocab, json["model"]["vocab"]) << text;
  const Json merges = json["model"].contains("merges") ? json["model"]["merges"] : Json::array();
  EXPECT_EQ(lists.merges.size(), merges.size()) << text;
  for (size_t i = 0; i < std::min(merges.size(), lists.merges.size()); ++i) {
    const auto [left, right] = lists.merges[i];
    const std::string joined = std::string(left).append(" ").append(right);
    const Json& one = merges[i];
    EXPECT_EQ(joined, one.is_string()
                          ? one.get<std::string>()
                          : one[0].get<std::string>() + " " + one[1].get<std::string>());
  }
  json["model"]["vocab"] = nullptr;
  if (json["model"].contains("merges")) json["model"]["merges"] = nullptr;
  EXPECT_EQ(others, json) << text;
  return true;
}

TEST(HfJsonLists, TakesPlainLists) {
  EXPECT_TRUE(TakenAndEqual(kText));
  EXPECT_TRUE(TakenAndEqual(R"({"model":{"vocab":{}}})"));
}

TEST(HfJsonLists, LeavesTheUnusualToTheReader) {
  for (const char* text :
       {"", "[]", "{", R"({"model":{"merges":[]}})", R"({"model":{"vocab":{"a":-1}}})",
        R"({"model":{"vocab":{"a":1.0}}})", R"({"model":{"vocab":{"a":01}}})",
        R"({"model":{"vocab":{"a":12345678901}}})", R"({"model":{"vocab":{"\ud800":1}}})",
        R"({"model":{"vocab":{"a":1},"vocab":{"b":2}}})",
        R"({"model":{"vocab":{"a":1}},"model":{}})",
        R"({"model":{"vocab":{"a":1},"merges":["a b c"]}})",
        R"({"model":{"vocab":{"a":1},"merges":[["a"]]}})", "{\"model\":{\"vocab\":{\"\xFF\":1}}}",
        "{\"model\":{\"vocab\":{\"\n\":1}}}"}) {
    EXPECT_FALSE(TakenAndEqual(text)) << text;
  }
}

TEST(HfJsonLists, DamagedTextsAreNeverReadOtherwiseThanByAParser) {
  std::mt19937 random(1);
  const std::string bytes = "{}[],:\"\\ \n0a19u-.\xC3\xA9";
  int taken = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text = kText;
    for (size_t n = 1 + random() % 2; n > 0; --n) {
      const size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 4) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        case 2:
          text.erase(at, 1 + random() % 3);
          break;
        default:
          text.resize(at + 1);
      }
    }
    taken += TakenAndEqual(text) ? 1 : 0;
    if (HasFailure()) break;
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace lucid
