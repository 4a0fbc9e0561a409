#include "engine/multiple_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseChoiceTask, ReadsHellaSwagsLines) {
  const ChoiceTask task =
      ParseChoiceTask(R"({"activity_label": "Roof", "ctx_a": "[header] A man is on a roof.",
          "ctx_b": "he", "endings": ["is using wrap. [step] Ok", " rips level tiles off."],
          "label": "1"})")
          .value();
  EXPECT_EQ(task.context, "Roof: A man is on a roof. He");
  EXPECT_THAT(task.endings, ElementsAre("is using wrap. Ok", "rips level tiles off."));
  EXPECT_EQ(task.label, 1u);
  EXPECT_EQ(ParseChoiceTask(R"({"ctx": "A", "endings": ["b", "c"], "label": 0})")->context, "A");
}

TEST(ParseChoiceTask, NamesWhatIsMissing) {
  const auto message = [](const char* json) { return ParseChoiceTask(json).error().message; };
  EXPECT_THAT(message("[1]"), HasSubstr("object"));
  EXPECT_THAT(message("{"), HasSubstr("JSON"));
  EXPECT_THAT(message(R"({"endings": ["a", "b"], "label": 0})"), HasSubstr("\"ctx\""));
  EXPECT_THAT(message(R"({"ctx": "x", "label": 0})"), HasSubstr("\"endings\""));
  EXPECT_THAT(message(R"({"ctx": "x", "endings": ["a"], "label": 0})"), HasSubstr("\"endings\""));
  EXPECT_THAT(message(R"({"ctx": "x", "endings": ["a", 1], "label": 0})"), HasSubstr("texts"));
  EXPECT_THAT(message(R"({"ctx": "x", "endings": ["a", "b"]})"), HasSubstr("0 to 1"));
  EXPECT_THAT(message(R"({"ctx": "x", "endings": ["a", "b"], "label": 2})"), HasSubstr("0 to 1"));
}

TEST(ScoreChoices, TheEndingThatTheModelWroteIsTheLikeliest) {
  const std::string model = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "no " << model;
  EngineConfig config;
  config.model = model;
  const auto engine = Engine::Load(config).value();
  const ChoiceTask task = {.context = "<|bos|>Once upon a time there was a little",
                           .endings = {"cat named Mia.", "the of xyz qq.", "named a cat was."},
                           .label = 0};
  const ChoiceScore score = ScoreChoices(*engine, task).value();
  EXPECT_EQ(score.best, 0u);
  EXPECT_EQ(score.best_norm, 0u);
  ASSERT_EQ(score.log_probs.size(), 3u);
  for (const double p : score.log_probs) EXPECT_LT(p, 0);
}

}  // namespace
}  // namespace lucid
