#include "account/html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lucid {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HtmlPageTest, TextFromFilesCannotBecomeMarkup) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\" class='y'>&\n\tü"),
            "&lt;a href=&quot;x&quot; class=&#39;y&#39;&gt;&amp;\n\tü");
  EXPECT_EQ(EscapeHtml(std::string_view("a\0b\x1b\x7f", 5)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(HtmlPageTest, PageHoldsEverythingItNeeds) {
  const std::string page = RenderHtmlPage(
      {.title = "a < b", .style = ".own{}", .body = "<p>text</p>", .script = "f();"});
  EXPECT_THAT(page, HasSubstr("<title>a &lt; b</title>"));
  EXPECT_THAT(page, HasSubstr("<h1>a &lt; b</h1>\n<p>text</p>"));
  EXPECT_THAT(page, HasSubstr(".own{}</style>"));
  EXPECT_THAT(page, HasSubstr("<script>\nf();\n</script>"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* outside : {"http://", "https://", "url(", "@import", "src=\""}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST(HtmlPageTest, PageWithoutAScriptHasNone) {
  EXPECT_THAT(RenderHtmlPage({.title = "t", .style = "", .body = "", .script = ""}),
              Not(HasSubstr("<script")));
}

}  // namespace
}  // namespace lucid
