#include "text/unicode.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace lucid {
namespace {

TEST(Unicode, DecodesEveryCharacterAndRefusesTheRest) {
  for (int32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code, text);
    const Utf8Char c = DecodeUtf8(text, 0);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
    // Every proper beginning is an incomplete tail of its own length.
    for (size_t n = 1; n < text.size(); ++n) ASSERT_EQ(IncompleteTail(text.substr(0, n)), n);
    ASSERT_EQ(IncompleteTail(text), 0U);
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE4\xBD"}) {
    EXPECT_EQ(DecodeUtf8(bad, 0).code, -1) << bad;
    EXPECT_EQ(DecodeUtf8(bad, 0).length, 1U) << bad;
  }
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(NormalizeUnicode("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(NormalizeUnicode("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(NormalizeUnicode("ﬁ①", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(NormalizeUnicode("\u1100\u1161\u11a8", NormalForm::kNfc), "각");
  EXPECT_EQ(NormalizeUnicode("q\u0307\u0323", NormalForm::kNfc), "q\u0323\u0307");
  EXPECT_EQ(NormalizeUnicode("\xFF"
                             "e\u0301\xC3",
                             NormalForm::kNfc),
            "\xFF"
            "é\xC3");
  EXPECT_EQ(NormalizeUnicode("\u0301", NormalForm::kNfc), "\u0301");
}

TEST(Unicode, NormalizesByTheTablesOfTheTokenizersLibrary) {
  // A mark of Unicode 15 is not reordered, a compatibility character of 14 not replaced.
  EXPECT_EQ(NormalizeUnicode("\u0728\u0349\U00011F42", NormalForm::kNfc), "\u0728\u0349\U00011F42");
  EXPECT_EQ(NormalizeUnicode("\uA7F2", NormalForm::kNfkc), "\uA7F2");
}

TEST(Unicode, LongRunsOfMarksAreNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(NormalizeUnicode(text, NormalForm::kNfd).size(), text.size());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Unicode, LowercaseIsFullAndWithoutContext) {
  EXPECT_EQ(LowercaseUnicode("ÀΣİǅ"), "àσi\u0307ǆ");
  EXPECT_EQ(LowercaseUnicode("A\xFFZ"), "a\xFFz");
}

}  // namespace
}  // namespace lucid
