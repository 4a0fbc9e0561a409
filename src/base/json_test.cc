#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lucid {
namespace {

using ::testing::HasSubstr;

std::string Nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(ParseJson, KeepsTheOrderOfMembers) {
  const auto json = ParseJson(R"({"b": 1, "a": [true, null, "x"]})", "it");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->dump(), R"({"b":1,"a":[true,null,"x"]})");
  const auto sorted = ParseSortedJson(R"({"b": 1, "a": 2})", "it");
  ASSERT_TRUE(sorted) << sorted.error().message;
  EXPECT_EQ(sorted->dump(), R"({"a":2,"b":1})");
}

TEST(ParseJson, DepthIsBounded) {
  EXPECT_TRUE(ParseJson(Nested(64), "it"));
  EXPECT_EQ(ParseJson(Nested(65), "f.json").error().message,
            "f.json is nested deeper than 64 levels at byte 64");
  EXPECT_TRUE(ParseJson(Nested(3), "it", 3));
  EXPECT_FALSE(ParseJson(Nested(4), "it", 3));
  EXPECT_FALSE(ParseSortedJson(Nested(65), "it"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += R"({"a":)";
  for (const std::string& text : {Nested(200'000), std::string(200'000, '['), objects,
                                  R"({"eos_token_id":)" + Nested(200'000) + "}"}) {
    EXPECT_THAT(ParseJson(text, "it").error().message, HasSubstr("nested deeper than 64 levels"));
    EXPECT_THAT(ParseSortedJson(text, "it").error().message, HasSubstr("nested deeper than 64"));
  }
}

TEST(ParseJson, BracketsInStringsAreText) {
  const std::string brackets(1000, '[');
  EXPECT_TRUE(ParseJson("\"" + brackets + "\"", "it"));
  EXPECT_TRUE(ParseJson(R"(["\")" + brackets + R"(\\", "]"])", "it"));
}

TEST(ParseJson, ErrorsNameTheTextTheCauseAndTheByte) {
  EXPECT_EQ(ParseJson(R"([{"a": 1}, )", "messages.json").error().message,
            "messages.json is not valid JSON: unexpected end of input at byte 12");
  EXPECT_EQ(ParseJson("", "it").error().message,
            "it is not valid JSON: unexpected end of input at byte 1");
  EXPECT_THAT(ParseJson("[1, nul]", "it").error().message,
              HasSubstr("it is not valid JSON: invalid literal at byte"));
  EXPECT_THAT(ParseJson("[1] 2", "it").error().message, HasSubstr("it is not valid JSON: "));
  EXPECT_THAT(ParseJson("\"\xff\"", "it").error().message, HasSubstr("ill-formed UTF-8"));
  EXPECT_EQ(ParseJson("[1e999]", "it").error().message,
            "it is not valid JSON: a number is too large");
  EXPECT_LT(ParseJson("x" + std::string(1 << 20, 'y'), "it").error().message.size(), 200u);
  EXPECT_EQ(ParseJson("[", "it").error().code, ErrorCode::kInvalidFile);
}

}  // namespace
}  // namespace lucid
