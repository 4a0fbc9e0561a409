// The evaluator's bounds and error messages; chat_template_test.cc compares its renderings with
// Python's.
#include "text/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lucid::jinja {
namespace {

using ::testing::HasSubstr;

std::string Repeat(const std::string& unit, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += unit;
  return out;
}

// The text, or "error: " and the message.
std::string RenderOrError(const std::string& source) {
  auto program = Template::Parse(source);
  if (!program) return "error: " + program.error().message;
  constexpr Limits kLimits{.steps = 2'000'000, .bytes = 64u << 20};
  auto text = program->Render({{"s", "abc"}}, kLimits);
  return text ? *text : "error: " + text.error().message;
}

TEST(JinjaBounds, HostileTemplatesEndWithAnError) {
  const std::pair<std::string, std::string> cases[] = {
      {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "recurses too deeply"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recurses too deeply"},
      {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
       "too many steps"},
      {"{{ range(100001) }}", "Range too big"},
      {"{{ 'a' * 100000000000 }}", "too much text"},
      {"{{ 2 ** 1000000 }}", "126 bits"},
      {"{{ '%1000000000d' % 1 }}", "width or precision"},
      {"{{ 'a' | center(100000000000) }}", "too much text"},
      {"{{ [1] | batch(100000000000, 1) | list }}", "too much text"},
      {"{{ ('a' * 1000000).replace('', 'b' * 1000000) }}", "too much text"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
       "nested more than"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% "
       "endfor %}"
       "{{ ns.x }}",
       "too m"},
      {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "nested more than"},
      {"{{ " + Repeat("(", 5000) + "1" + Repeat(")", 5000) + " }}", "nests more than"},
      {"{{ 1" + Repeat("+1", 100000) + " }}", "chains more than"},
      {Repeat("{% if 1 %}", 5000) + Repeat("{% endif %}", 5000), "nests more than"},
  };
  for (const auto& [source, message] : cases) {
    SCOPED_TRACE(source.substr(0, 100));
    std::string result = RenderOrError(source);
    EXPECT_THAT(result, HasSubstr("error: "));
    EXPECT_THAT(result, HasSubstr(message));
  }
}

TEST(JinjaBounds, LongWordsWrapInLinearTime) {
  EXPECT_EQ(RenderOrError("{{ ('-' * 300000) | wordwrap(1) | length }}"), "599999");
}

TEST(JinjaErrors, NameLineAndCause) {
  EXPECT_EQ(RenderOrError("a\n\n{{ s.nope.x }}"),
            "error: chat template, line 3: 'str object' has no attribute 'nope'");
  EXPECT_EQ(RenderOrError("{% if s %}\n{% for x in s %}\n"),
            "error: chat template, line 2: unexpected end of template: 'endfor' or 'else' was "
            "expected to "
            "close the 'for' of line 2");
  EXPECT_EQ(RenderOrError("\n{% include 'x' %}"),
            "error: chat template, line 2: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(RenderOrError("\xff"),
            "error: chat template, line 1: the template is not valid UTF-8 text");
}

}  // namespace
}  // namespace lucid::jinja
