#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> AllMatches(const std::string& pattern, const std::string& text) {
  auto regex = Regex::Compile(pattern);
  if (!regex) return {regex.error().message};
  const Subject subject(text);
  Regex::Matcher matcher(*regex);
  std::vector<std::string> out;
  Match match;
  for (size_t from = 0; from <= text.size() && matcher.Next(subject.text(), from, &match);) {
    out.push_back(text.substr(match.begin, match.end - match.begin));
    from = match.end + (match.begin == match.end ? 1 : 0);
  }
  return out;
}

TEST(Regex, ReadsOnigurumaSpellings) {
  EXPECT_THAT(AllMatches(R"(\h+)", "x1F z"), ElementsAre("1F"));
  EXPECT_THAT(AllMatches(R"(\u0041+)", "AAB"), ElementsAre("AA"));
  EXPECT_THAT(AllMatches(R"(\w+)", "a\u0301b c"), ElementsAre("a\u0301b", "c"));
  EXPECT_THAT(AllMatches(R"(a{1,2}+)", "aaaaa"), ElementsAre("aaaaa"));  // repeats, not possessive
  EXPECT_THAT(AllMatches(R"((?i:'s|'ll))", "it'S we'LL"), ElementsAre("'S", "'LL"));
  EXPECT_THAT(AllMatches(R"([\p{L}&&[^aeiou]]+)", "hello"), ElementsAre("h", "ll"));
  EXPECT_THAT(AllMatches(R"([a[xy]]+)", "axbyya"), ElementsAre("ax", "yya"));
  EXPECT_THAT(AllMatches(R"(\p{Han}+)", "漢、字"),
              ElementsAre("漢", "字"));  // the script, not its extensions
  EXPECT_THAT(AllMatches("^b", "a\nb"), ElementsAre("b"));
}

TEST(Regex, SpacesAreThoseOfUnicode) {
  EXPECT_THAT(AllMatches(R"(\s+)", "a\u0085b\u3000c\u180Ed"), ElementsAre("\u0085", "\u3000"));
}

TEST(Regex, KnowsLettersNewerThanThoseOfPcre) {
  EXPECT_THAT(AllMatches(R"(\p{L}+)", "a\U00011F04b\U0001E4D0"),
              ElementsAre("a\U00011F04b\U0001E4D0"));
  EXPECT_THAT(AllMatches(R"(\p{N})", "\U00011F50"), ElementsAre("\U00011F50"));
}

TEST(Regex, InvalidBytesAreNeitherLettersNorSpaces) {
  EXPECT_THAT(AllMatches(R"(\p{L}+)",
                         "ab\xFF"
                         "cd\xC3"),
              ElementsAre("ab", "cd"));
  EXPECT_THAT(AllMatches(R"([^\s\p{L}\p{N}]+)", "a\xFF\x80 "), ElementsAre("\xFF\x80"));
}

TEST(Regex, RefusesWhatIsNoPatternOrTooLarge) {
  EXPECT_THAT(Regex::Compile("(").error().message, HasSubstr("parenthes"));
  EXPECT_THAT(Regex::Compile(std::string(100'000, 'a')).error().message, HasSubstr("100000"));
  EXPECT_FALSE(Regex::Compile(std::string(500, '(') + std::string(500, ')')));
  EXPECT_FALSE(Regex::Compile("[a[b[c"));
}

// Exponential backtracking ends at the work limit, and deep recursion does not touch the machine's
// stack.
TEST(Regex, SearchesAreBounded) {
  EXPECT_TRUE(AllMatches("(a+)+$b", std::string(40, 'a')).empty());
  EXPECT_THAT(AllMatches("(?:a|b)*c", std::string(200'000, 'a') + "c").size(), 1U);
}

}  // namespace
}  // namespace lucid
