// Pages as text and as HTML: what every block becomes.
#include "explain/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "explain/page_html.h"
#include "explain/page_text.h"

namespace lucid {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PageText, WrapsWordsAndAlignsColumnsByWhatATerminalShows) {
  Page page("Title");
  std::string words;
  for (int i = 0; i < 40; ++i) words += "word ";
  page.Text(words);
  page.Table({"text", "n"}, {{"你好", "1"}, {"abcd", "22"}});
  page.Formula("a = b\n\nc = d", {{"a", "first"}});
  const std::string text = PageText(page);
  EXPECT_THAT(text, HasSubstr("Title\n=====\n"));
  EXPECT_THAT(text, HasSubstr("  你好   1\n  abcd  22\n"));
  EXPECT_THAT(text, HasSubstr("        a = b\n\n        c = d\n\n    a  first\n"));
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(end - at, kPageColumns);
    at = end + 1;
  }
}

TEST(PageText, PaddedCutsBetweenCharacters) {
  EXPECT_EQ(Padded("ab", 4), "ab  ");
  EXPECT_EQ(Padded("ab", 4, true), "  ab");
  EXPECT_EQ(Padded("abcdefgh", 6), "abc...");
  EXPECT_EQ(Padded("你好你好", 6), "你... ");
  EXPECT_EQ(DisplayWidth("🚀é"), 3U);
}

TEST(PageHtml, EscapesAndMarksNames) {
  Page page("a < b");
  page.Heading("see `x<y>`");
  page.Table({"t"}, {{"<script>"}});
  page.Text("an odd ` one");
  const std::string html = PageHtml(page, "of & more", {});
  EXPECT_THAT(html, HasSubstr("<h2>see <code>x&lt;y&gt;</code></h2>"));
  EXPECT_THAT(html, HasSubstr("<td>&lt;script&gt;</td>"));
  EXPECT_THAT(html, HasSubstr("of &amp; more"));
  EXPECT_THAT(html, HasSubstr("an odd <code> one</code>"));
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
}

TEST(Figures, DrawTheirNumbers) {
  const Figure bars{"Bars.", Bars{{{"long", 2, "2 MB"}, {"short", 1, "1 MB"}, {"none", 0, "0"}}}};
  const std::string text = FigureText(bars);
  EXPECT_THAT(text, HasSubstr("long   " + std::string(40, '#') + " 2 MB\n"));
  EXPECT_THAT(text, HasSubstr("short  " + std::string(20, '#') + " 1 MB\n"));
  EXPECT_THAT(text, HasSubstr("none   0\n"));
  EXPECT_THAT(FigureSvg(bars), HasSubstr(">2 MB</text>"));

  Plot plot;
  plot.x_title = "x";
  plot.lines = {{"line", {{0, 1}, {5, 3}, {10, 2}}}};
  plot.marks = {{"here", 5, 3}};
  plot.rules = {{"there", 4, true}};
  const Figure figure{"Plot.", plot};
  EXPECT_THAT(FigureText(figure), HasSubstr("here: 5, 3"));
  EXPECT_THAT(FigureText(figure), HasSubstr("there: 4"));
  EXPECT_THAT(FigureSvg(figure), HasSubstr("<path d=\"M"));

  const Figure map{"Map.", HeatMap{{"a", "b"}, {"a", "b"}, {{1, -1}, {0.55, 0.02}}}};
  EXPECT_THAT(FigureText(map), HasSubstr("  a | #\n  b | 5 .\n"));
  EXPECT_THAT(FigureSvg(map), HasSubstr("a -&gt; b: masked"));

  Cells cells;
  cells.rows = {{"row", std::vector<Cells::Cell>(60, {"7", 1})}};
  const std::string lines = FigureText({"Cells.", cells});
  EXPECT_THAT(lines, HasSubstr("]\n"));
  EXPECT_LE(lines.find('\n'), kPageColumns);
  const Figure turns{"Turns.", Turns{{{"pair", {0, 1.5707963}}}}};
  EXPECT_THAT(FigureText(turns), HasSubstr("0.0    90.0"));
}

}  // namespace
}  // namespace lucid
