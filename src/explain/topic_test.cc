// Every topic on models of every kind, in both formats; and that the list is in order.
#include "explain/topic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "explain/page_text.h"
#include "explain/papers.h"
#include "explain/site.h"
#include "store/model_store.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

const std::string kShared = LUCID_SHARED_DIR;
const std::string kConfigs = std::string(LUCID_SOURCE_DIR) + "/tests/data/configs";

std::unique_ptr<Subject> Open(const std::string& path) {
  SubjectOptions options;
  options.engine.model = path;
  options.engine.n_threads = 1;
  options.name = fs::path(path).filename();
  options.hardware = "h100";
  Result<std::unique_ptr<Subject>> subject = Subject::Open(std::move(options));
  if (!subject) {
    ADD_FAILURE() << path << ": " << subject.error().message;
    return nullptr;
  }
  return *std::move(subject);
}

size_t Count(const std::string& text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

void CheckText(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    EXPECT_LE(DisplayWidth(line), kPageColumns) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    at = end + 1;
  }
  static const std::regex kNoNumber(R"((^|[^a-z])-?(nan|inf)([^a-z]|$))");
  EXPECT_FALSE(std::regex_search(text, kNoNumber)) << text;
}

// No topic may fail, leave the page empty, or write what a browser or a terminal cannot show.
void CheckAllTopics(Subject& subject) {
  for (const Topic& topic : AllTopics()) {
    SCOPED_TRACE(subject.name() + ", " + std::string(topic.name));
    const Result<std::string> text = TopicText(topic, subject);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_GT(text->size(), 400U);
    CheckText(*text);
    const Result<std::string> html = TopicHtml(topic, subject);
    ASSERT_TRUE(html) << html.error().message;
    EXPECT_TRUE(html->starts_with("<!DOCTYPE html>"));
    for (const char* tag : {"svg", "table", "p", "dl", "ul", "figure", "pre"}) {
      const std::string name = tag;
      EXPECT_EQ(Count(*html, "<" + name + ">") + Count(*html, "<" + name + " "),
                Count(*html, "</" + name + ">"))
          << tag;
    }
    EXPECT_THAT(*html, Not(HasSubstr("http://")));
    EXPECT_THAT(*html, Not(HasSubstr("https://")));
    EXPECT_THAT(*html, Not(HasSubstr("=\"nan")));
  }
}

class OfFixtures : public testing::TestWithParam<const char*> {};

TEST_P(OfFixtures, EveryTopicHasItsPage) {
  const std::string path = kShared + "/fixtures/" + GetParam();
  if (!fs::exists(path)) GTEST_SKIP() << "no fixture at " << path;
  const std::unique_ptr<Subject> subject = Open(path);
  ASSERT_NE(subject, nullptr);
  EXPECT_TRUE(subject->has_weights());
  CheckAllTopics(*subject);
}

INSTANTIATE_TEST_SUITE_P(Models, OfFixtures,
                         testing::Values("models/llama3_gqa", "models/mixtral",
                                         "models/deepseek_v3", "models/bloom", "models/mpt_8h",
                                         "models/gemma3_text", "models/gpt2", "models/gpt_oss",
                                         "models/falcon_mqa", "models/llama_rope_yarn",
                                         "trained/stories_llama"));

class OfConfigs : public testing::TestWithParam<const char*> {};

TEST_P(OfConfigs, EveryTopicHasItsPage) {
  const std::unique_ptr<Subject> subject = Open(kConfigs + "/" + GetParam() + ".json");
  ASSERT_NE(subject, nullptr);
  EXPECT_FALSE(subject->has_weights());
  CheckAllTopics(*subject);
}

INSTANTIATE_TEST_SUITE_P(Models, OfConfigs,
                         testing::Values("llama-3-8b", "qwen2.5-7b", "deepseek-v3", "mistral-7b",
                                         "falcon-7b", "gpt2"));

TEST(OfSmolLm2, EveryTopicHasItsPage) {
  const Result<std::string> path = ResolveModel("smollm2");
  if (!path) GTEST_SKIP() << "smollm2 was not pulled";
  const std::unique_ptr<Subject> subject = Open(*path);
  ASSERT_NE(subject, nullptr);
  CheckAllTopics(*subject);
}

TEST(Topics, ListIsInOrder) {
  std::set<std::string_view> names;
  for (const Topic& topic : AllTopics()) {
    EXPECT_TRUE(names.insert(topic.name).second) << topic.name;
    EXPECT_LE(topic.name.size() + topic.line.size(), 78U) << topic.name;
  }
  // Any name leads to one topic.
  for (const Topic& topic : AllTopics()) {
    for (const std::string_view word : WordsOf(topic.words)) {
      if (word != topic.name) {
        EXPECT_TRUE(names.insert(word).second) << word;
      }
    }
  }
  for (const Topic& topic : AllTopics()) {
    for (const std::string_view name : WordsOf(topic.see)) {
      EXPECT_EQ((*FindTopic(name))->name, name) << topic.name << " leads to " << name;
      EXPECT_NE(name, topic.name);
    }
  }
  const std::string list = TopicList();
  for (const Chapter& chapter : AllChapters()) {
    EXPECT_TRUE(FindTopic(chapter.first));
    EXPECT_THAT(list, HasSubstr(std::string(chapter.title) + "\n  "));
  }
}

TEST(Topics, AreFoundByOtherWordsAndMistypedOnesAreNamed) {
  EXPECT_EQ((*FindTopic("top-p"))->name, "sampling");
  EXPECT_EQ((*FindTopic("mqa"))->name, "gqa");
  const Result<const Topic*> near = FindTopic("samplin");
  ASSERT_FALSE(near);
  EXPECT_EQ(near.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(near.error().message, HasSubstr("'sampling'"));
  EXPECT_THAT(FindTopic("attn").error().message, HasSubstr("lists all"));
  EXPECT_THAT(FindTopic("weather").error().message, Not(HasSubstr("but")));
}

// What the texts that this grew out of name, with the year.
TEST(Papers, AllAreNamedByATopic) {
  const std::pair<const char*, int> kNamed[] = {
      {"bpe", 2016},         {"transformer", 2017}, {"rope", 2021},
      {"gqa", 2023},         {"mqa", 2019},         {"flash1", 2022},
      {"flash2", 2023},      {"flash3", 2024},      {"flash-decoding", 2023},
      {"awq", 2023},         {"paged", 2023},       {"glu", 2020},
      {"rms-norm", 2019},    {"gelu", 2016},        {"alibi", 2022},
      {"yarn", 2023},        {"ntk", 2023},         {"deepseek-v2", 2024},
      {"deepseek-v3", 2024}, {"orca", 2022},        {"sarathi", 2023},
      {"distserve", 2024},   {"leviathan", 2023},   {"chen", 2023},
      {"medusa", 2024},      {"eagle", 2024},       {"lookahead", 2024},
      {"streaming", 2024},   {"h2o", 2023},         {"snapkv", 2024},
      {"kivi", 2024},        {"kvquant", 2024},     {"llama3", 2024},
      {"mistral", 2023},     {"qwen2.5", 2024},     {"bloom", 2022},
      {"mpt", 2023},         {"h100", 2022},        {"roofline", 2009},
      {"chinchilla", 2022}};
  std::set<std::string_view> cited;
  for (const Topic& topic : AllTopics()) {
    for (const std::string_view key : WordsOf(topic.papers)) {
      EXPECT_NE(FindPaper(key), nullptr) << topic.name << ": " << key;
      cited.insert(key);
    }
  }
  for (const auto& [key, year] : kNamed) {
    ASSERT_NE(FindPaper(key), nullptr) << key;
    EXPECT_EQ(FindPaper(key)->year, year) << key;
    EXPECT_TRUE(cited.count(key)) << key;
  }
  for (const Paper& paper : AllPapers()) EXPECT_TRUE(cited.count(paper.key)) << paper.key;
}

TEST(Site, LinksLeadToItsPages) {
  const std::unique_ptr<Subject> subject = Open(kConfigs + "/gpt2.json");
  ASSERT_NE(subject, nullptr);
  const Result<std::vector<SiteFile>> files = MakeSite(*subject);
  ASSERT_TRUE(files);
  EXPECT_EQ(files->size(), AllTopics().size() + 1);
  std::set<std::string> names;
  for (const SiteFile& file : *files) names.insert(file.name);
  const std::regex link("href=\"([^\"]+)\"");
  for (const SiteFile& file : *files) {
    int links = 0;
    for (std::sregex_iterator it(file.content.begin(), file.content.end(), link), end; it != end;
         ++it, ++links) {
      EXPECT_TRUE(names.count((*it)[1])) << file.name << " -> " << (*it)[1];
    }
    EXPECT_GT(links, 0) << file.name;
  }
}

TEST(Subjects, RefuseWhatDoesNotFitAPage) {
  SubjectOptions options;
  options.engine.model = kConfigs + "/none.json";
  EXPECT_FALSE(Subject::Open(options));
  const std::string stories = kShared + "/fixtures/trained/stories_llama";
  if (!fs::exists(stories)) GTEST_SKIP() << "no fixture at " << stories;
  options.engine.model = stories;
  options.prompt = "";
  for (int i = 0; i < 200; ++i) options.prompt += "word ";
  const auto subject = Subject::Open(options);
  ASSERT_FALSE(subject);
  EXPECT_THAT(subject.error().message, HasSubstr("pages show 1 to 96"));
}

}  // namespace
}  // namespace lucid
