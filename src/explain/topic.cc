#include "explain/topic.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/edit_distance.h"
#include "explain/page_text.h"
#include "explain/papers.h"

namespace lucid {

std::vector<std::string_view> WordsOf(std::string_view list) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(' ', at), list.size());
    if (end > at) words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Result<const Topic*> FindTopic(std::string_view name) {
  // More edits make another word.
  const size_t most = std::clamp<size_t>(name.size() / 4, 1, 3);
  constexpr size_t kPart = 3;  // characters that are enough to look for
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const Topic& topic : AllTopics()) {
    if (topic.name == name) return &topic;
  }
  for (const Topic& topic : AllTopics()) {
    size_t best = EditDistance(name, topic.name);
    for (const std::string_view word : WordsOf(topic.words)) {
      if (word == name) return &topic;
      best = std::min(best, EditDistance(name, word));
    }
    const bool holds = name.size() >= kPart && topic.name.find(name) != std::string_view::npos;
    if (best <= most || holds) near.emplace_back(holds ? 0 : best, topic.name);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(near.size(), 3); ++i) {
    names += fmt::format("{}'{}'", i == 0 ? "" : ", ", near[i].second);
  }
  return Err(ErrorCode::kNotFound, "there is no topic '{}'{}; 'lucid explain' lists all", name,
             names.empty() ? "" : ", but " + names);
}

Result<Page> ExplainTopic(const Topic& topic, Subject& subject) {
  Page page{std::string(topic.title)};
  LUCID_RETURN_IF_ERROR(topic.explain(subject, page));
  std::vector<std::string> papers;
  for (const std::string_view key : WordsOf(topic.papers)) {
    papers.push_back(Cite(*FindPaper(key)));
  }
  if (!papers.empty()) {
    page.Heading("Papers");
    page.List(std::move(papers));
  }
  return page;
}

std::string TopicList() {
  constexpr size_t kNames = 18;
  std::string out;
  for (const Topic& topic : AllTopics()) {
    for (const Chapter& chapter : AllChapters()) {
      if (chapter.first == topic.name) {
        out += fmt::format("{}{}\n", out.empty() ? "" : "\n", chapter.title);
      }
    }
    out += "  " + Padded(topic.name, kNames) + std::string(topic.line) + "\n";
  }
  return out;
}

}  // namespace lucid
