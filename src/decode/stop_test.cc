#include "decode/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lucid {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

struct Outcome {
  std::string text;
  size_t consumed = 0;
  bool stopped = false;
  std::string matched;
};

Outcome Feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  auto matcher = StopMatcher::Create(stops);
  EXPECT_TRUE(matcher.has_value());
  Outcome outcome;
  for (const std::string& piece : pieces) {
    ++outcome.consumed;
    outcome.text += matcher->Add(piece);
    if (matcher->stopped()) break;
  }
  outcome.text += matcher->Finish();
  outcome.stopped = matcher->stopped();
  outcome.matched = matcher->matched();
  return outcome;
}

std::vector<std::string> Split(const std::string& text, size_t size) {
  std::vector<std::string> pieces;
  for (size_t i = 0; i < text.size(); i += size) pieces.push_back(text.substr(i, size));
  return pieces;
}

TEST(StopMatcherTest, HoldsBackOnlyWhatMayBecomeAStop) {
  auto matcher = *StopMatcher::Create({"STOP"});
  EXPECT_EQ(matcher.Add("aS"), "a");
  EXPECT_EQ(matcher.Add("T"), "");
  EXPECT_EQ(matcher.Add("x"), "STx");
  EXPECT_EQ(matcher.Add("STO"), "");
  EXPECT_EQ(matcher.Finish(), "STO");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, ShowsNothingAfterTheStop) {
  auto matcher = *StopMatcher::Create({"##"});
  EXPECT_EQ(matcher.Add("xx##yy"), "xx");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "##");
  EXPECT_EQ(matcher.Add("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, RejectsAnEmptyStopString) {
  EXPECT_FALSE(StopMatcher::Create({"a", ""}).has_value());
  auto none = *StopMatcher::Create({});
  EXPECT_EQ(none.Add("text"), "text");
}

TEST(StopMatcherTest, TheFirstToEndWinsThenTheLongest) {
  EXPECT_EQ(Feed({"abc", "b"}, {"xabcx"}).matched, "b");
  EXPECT_EQ(Feed({"bc", "abc"}, {"xabcx"}).matched, "abc");
  EXPECT_EQ(Feed({"bc", "abc"}, {"xabcx"}).text, "x");
}

// Against a definition by search, for every text of up to 7 letters of a two-letter alphabet, cut
// in pieces of every size.
TEST(StopMatcherTest, EqualsSearchHoweverTheTextIsCut) {
  const std::vector<std::vector<std::string>> stop_lists = {
      {"aab"}, {"abab"}, {"aa", "aba"}, {"b"}, {"abba", "bb"}, {"aaaa", "ab"}};
  for (const auto& stops : stop_lists) {
    for (size_t length = 0; length <= 7; ++length) {
      for (unsigned bits = 0; bits < (1u << length); ++bits) {
        std::string text;
        for (size_t i = 0; i < length; ++i) text += (bits >> i & 1) ? 'b' : 'a';
        size_t end = std::string::npos;
        size_t begin = std::string::npos;
        for (const std::string& stop : stops) {
          const size_t at = text.find(stop);
          if (at == std::string::npos) continue;
          if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
            end = at + stop.size();
            begin = at;
          }
        }
        const std::string expected = text.substr(0, begin);
        for (size_t size = 1; size <= 4; ++size) {
          const Outcome outcome = Feed(stops, Split(text, size));
          ASSERT_EQ(outcome.text, expected) << text << " in pieces of " << size;
          ASSERT_EQ(outcome.stopped, end != std::string::npos) << text;
        }
      }
    }
  }
}

TEST(StopMatcherTest, LongRepetitiveTextTakesLinearTime) {
  const std::string stop = std::string(20000, 'a') + "b";
  auto matcher = *StopMatcher::Create({stop});
  std::string shown;
  for (int i = 0; i < 200000; ++i) shown += matcher.Add("a");
  EXPECT_EQ(shown.size(), 180000u);
}

TEST(StopMatcherTest, ReferenceCases) {
  const std::filesystem::path path =
      std::filesystem::path(LUCID_SHARED_DIR) / "cases/stop_strings.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; see LUCID_SHARED_DIR";
  std::ifstream file(path);
  int rows = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const json row = json::parse(line);
    SCOPED_TRACE(row["id"].get<std::string>());
    const Outcome outcome = Feed(row["stop"].get<std::vector<std::string>>(),
                                 row["pieces"].get<std::vector<std::string>>());
    EXPECT_THAT(row["expect_texts"].get<std::vector<std::string>>(),
                ::testing::Contains(outcome.text));
    EXPECT_EQ(outcome.consumed, row["tokens_consumed"].get<size_t>());
    const bool stops = row["expect_finish"] == "stop" && row["ends_with"] != "stop";
    EXPECT_EQ(outcome.stopped, stops);
  }
  EXPECT_GE(rows, 25);
}

TEST(FinishReasonTest, UsesTheNamesOfTheApi) {
  EXPECT_EQ(FinishReason(StopCause::kEndOfGeneration), "stop");
  EXPECT_EQ(FinishReason(StopCause::kStopString), "stop");
  EXPECT_EQ(FinishReason(StopCause::kLength), "length");
  EXPECT_EQ(FinishReason(StopCause::kAborted), "abort");
}

}  // namespace
}  // namespace lucid
