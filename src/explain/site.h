// The course as a small web site: one page a topic and an index, linked with each other, opened
// without a server or a network. Entry points: MakeSite, TopicHtml.
#pragma once

#include <string>
#include <vector>

#include "explain/topic.h"

namespace lucid {

struct SiteFile {
  std::string name;  // "index.html", "kv-cache.html"
  std::string content;
};

// All topics, in their order. Errors of the subject.
Result<std::vector<SiteFile>> MakeSite(Subject& subject);

// One topic by itself: a page that needs no other.
Result<std::string> TopicHtml(const Topic& topic, Subject& subject);
// The same for terminals, with what to read next.
Result<std::string> TopicText(const Topic& topic, Subject& subject);

}  // namespace lucid
