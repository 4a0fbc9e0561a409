// Topics: what `lucid explain` can explain. One row each in registry.cc, in an order that reads as
// a course; topics/*.cc fill the pages (docs/explain.md says how to add one).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "explain/page.h"
#include "explain/subject.h"

namespace lucid {

struct Topic {
  std::string_view name;    // "kv-cache"
  std::string_view title;   // of its page
  std::string_view line;    // what it answers, for the list
  std::string_view words;   // other names that find it, separated by spaces
  std::string_view see;     // names of topics that belong to it
  std::string_view papers;  // keys of papers.h
  Status (*explain)(Subject& subject, Page& page);
};

// A chapter of the course: it begins at the topic of that name.
struct Chapter {
  std::string_view title, first;
};

std::span<const Topic> AllTopics();
std::span<const Chapter> AllChapters();
// By name or another word for it. kNotFound names those that are spelled nearly so.
Result<const Topic*> FindTopic(std::string_view name);

// The parts of a list of words.
std::vector<std::string_view> WordsOf(std::string_view list);

// The page: what the topic says, then its papers and neighbours. Errors of the subject.
Result<Page> ExplainTopic(const Topic& topic, Subject& subject);

// Every topic with a line, by chapters.
std::string TopicList();

}  // namespace lucid
