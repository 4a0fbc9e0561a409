#include "explain/site.h"

#include <fmt/format.h>

#include "account/html_page.h"
#include "explain/page_html.h"
#include "explain/page_text.h"

namespace lucid {
namespace {

std::string FileOf(std::string_view topic) {
  return fmt::format("{}.html", topic);
}

std::string IndexPage(const Subject& subject) {
  std::string body = "<p>" + EscapeHtml(subject.Describe()) + "</p>\n";
  bool open = false;
  int number = 0;
  for (const Topic& topic : AllTopics()) {
    for (const Chapter& chapter : AllChapters()) {
      if (chapter.first != topic.name) continue;
      if (open) body += "</ol></div>\n";
      body += fmt::format("<h2>{}</h2>\n<div class=\"card\"><ol start=\"{}\">\n", chapter.title,
                          number + 1);
      open = true;
    }
    ++number;
    body += fmt::format("<li><a href=\"{}\">{}</a> <span class=\"muted\">{}</span></li>\n",
                        FileOf(topic.name), EscapeHtml(topic.title), EscapeHtml(topic.line));
  }
  return RenderHtmlPage({.title = "How a language model runs: " + subject.name(),
                         .style = "body { max-width: 860px; } li { margin: 3px 0; } "
                                  "ol { margin: 0; padding-left: 34px; }",
                         .body = body + "</ol></div>\n",
                         .script = ""});
}

PageLinks LinksOf(size_t at) {
  const std::span<const Topic> topics = AllTopics();
  PageLinks links;
  links.before.emplace_back("All topics", "index.html");
  if (at > 0) {
    links.before.emplace_back("Before: " + std::string(topics[at - 1].name),
                              FileOf(topics[at - 1].name));
  }
  if (at + 1 < topics.size()) {
    links.before.emplace_back("Next: " + std::string(topics[at + 1].name),
                              FileOf(topics[at + 1].name));
  }
  for (const std::string_view name : WordsOf(topics[at].see)) {
    links.after.emplace_back(std::string(name), FileOf(name));
  }
  return links;
}

}  // namespace

Result<std::vector<SiteFile>> MakeSite(Subject& subject) {
  std::vector<SiteFile> files = {{"index.html", IndexPage(subject)}};
  const std::span<const Topic> topics = AllTopics();
  for (size_t i = 0; i < topics.size(); ++i) {
    LUCID_ASSIGN_OR_RETURN(const Page page, ExplainTopic(topics[i], subject));
    files.push_back({FileOf(topics[i].name), PageHtml(page, subject.Describe(), LinksOf(i))});
  }
  return files;
}

Result<std::string> TopicHtml(const Topic& topic, Subject& subject) {
  LUCID_ASSIGN_OR_RETURN(Page page, ExplainTopic(topic, subject));
  std::string see;
  for (const std::string_view name : WordsOf(topic.see)) {
    see += fmt::format("{}`lucid explain {}`", see.empty() ? "" : ", ", name);
  }
  if (!see.empty()) page.Text("See also: " + see);
  return PageHtml(page, subject.Describe(), {});
}

Result<std::string> TopicText(const Topic& topic, Subject& subject) {
  LUCID_ASSIGN_OR_RETURN(const Page page, ExplainTopic(topic, subject));
  std::string see;
  for (const std::string_view name : WordsOf(topic.see)) {
    see += (see.empty() ? "" : ", ") + std::string(name);
  }
  return PageText(page) + "\n" + WrappedText(subject.Describe()) +
         (see.empty() ? "" : WrappedText("See also: " + see));
}

}  // namespace lucid
