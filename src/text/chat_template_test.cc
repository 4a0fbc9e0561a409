// Chat templates against the cases of LUCID_SHARED_DIR/cases and against what Python's jinja2
// renders (tests/data/chat_templates, made by python/golden/chat_templates.py), and the shaping of
// messages.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "text/jinja_template.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr std::time_t kNow = 1700000000;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Json> ReadRows(const std::string& path) {
  std::ifstream in(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

std::string SharedPath(const std::string& name) {
  return std::string(LUCID_SHARED_DIR) + "/" + name;
}

std::string SharedTemplate(const std::string& name) {
  return Json::parse(ReadFile(SharedPath("tokenizers/" + name)))["chat_template"];
}

std::string TemplateOf(const Json& row) {
  if (row.contains("template")) return row["template"];
  return SharedTemplate(row["template_from"]);
}

#define REQUIRE_SHARED(path)                                                   \
  if (!std::filesystem::exists(SharedPath(path))) {                            \
    GTEST_SKIP() << "needs " << SharedPath(path) << " (set LUCID_SHARED_DIR)"; \
  }

TEST(ChatTemplateCases, RenderAsTransformers) {
  REQUIRE_SHARED("cases/chat_template.jsonl");
  auto rows = ReadRows(SharedPath("cases/chat_template.jsonl"));
  ASSERT_GT(rows.size(), 100u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    auto program = jinja::Template::Parse(TemplateOf(row));
    Result<std::string> text = tl::unexpected<Error>(program ? Error{} : program.error());
    if (program) text = program->Render(row.value("context", Json::object()));
    if (row.contains("expect_text")) {
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, row["expect_text"].get<std::string>());
    } else if (row.contains("expect_regex")) {
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_TRUE(std::regex_match(*text, std::regex(row["expect_regex"].get<std::string>())))
          << *text;
    } else {
      ASSERT_FALSE(text) << *text;
      bool raised = row["error_class"] == "TemplateError";
      if (raised) {
        EXPECT_THAT(text.error().message, HasSubstr(row["reference_message"].get<std::string>()));
      } else {
        EXPECT_THAT(text.error().message, ::testing::StartsWith("chat template, line "));
      }
    }
  }
}

std::string Bos(const std::string& name) {
  return name.find("deepseek") == 0 ? "<｜begin▁of▁sentence｜>" : "";
}
std::string Eos(const std::string& name) {
  return name.find("deepseek") == 0 ? "<｜end▁of▁sentence｜>" : "<|im_end|>";
}

TEST(ChatTemplateCases, NullContentWithToolCalls) {
  REQUIRE_SHARED("cases/chat_null_content.jsonl");
  auto rows = ReadRows(SharedPath("cases/chat_null_content.jsonl"));
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    auto chat = ChatTemplate::Parse(TemplateOf(row));
    ASSERT_TRUE(chat) << chat.error().message;
    std::string name = row["template_from"];
    auto text =
        chat->Render(row["request_messages"], {.bos_token = Bos(name), .eos_token = Eos(name)});
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, row["expect_text"].get<std::string>());
  }
}

TEST(ChatTemplateCases, ContentParts) {
  REQUIRE_SHARED("cases/chat_content_parts.jsonl");
  auto rows = ReadRows(SharedPath("cases/chat_content_parts.jsonl"));
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    auto chat = ChatTemplate::Parse(TemplateOf(row));
    ASSERT_TRUE(chat) << chat.error().message;
    auto text =
        chat->Render(Json::array({Json{{"role", "user"}, {"content", row["content"]}}}), {});
    ASSERT_TRUE(text) << text.error().message;
    auto allowed = row["allowed_renderings"].get<std::vector<std::string>>();
    EXPECT_THAT(allowed, ::testing::Contains(*text));
  }
}

TEST(ChatTemplateCases, BosOfTheTemplate) {
  REQUIRE_SHARED("cases/bos.jsonl");
  size_t seen = 0;
  for (const Json& row : ReadRows(SharedPath("cases/bos.jsonl"))) {
    if (row["endpoint"] != "chat") continue;
    ++seen;
    SCOPED_TRACE(row["id"].get<std::string>());
    std::string name = row["tokenizer"];
    auto chat = ChatTemplate::Parse(SharedTemplate(name + "/tokenizer_config.json"));
    ASSERT_TRUE(chat) << chat.error().message;
    auto text = chat->Render(row["messages"], {.bos_token = Bos(name), .eos_token = Eos(name)});
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, row["rendered"].get<std::string>());
  }
  EXPECT_GT(seen, 3u);
}

// Rows {template | template_ref, context, ok | error}: raw renderings of Python's jinja2.
TEST(ChatTemplateGolden, RenderAsJinja2) {
  std::string folder = std::string(LUCID_SOURCE_DIR) + "/tests/data/chat_templates/";
  Json templates = Json::parse(ReadFile(folder + "templates.json"));
  auto rows = ReadRows(folder + "renderings.jsonl");
  ASSERT_GT(rows.size(), 300u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    std::string source =
        row.contains("template") ? row["template"] : templates[row["ref"].get<std::string>()];
    SCOPED_TRACE("row " + std::to_string(i) + ": " + source.substr(0, 200));
    auto program = jinja::Template::Parse(source);
    Result<std::string> text = tl::unexpected<Error>(program ? Error{} : program.error());
    if (program) text = program->Render(row.value("context", Json::object()), {}, kNow);
    if (row.contains("ok")) {
      EXPECT_EQ(text ? *text : text.error().message, row["ok"].get<std::string>());
    } else if (row["error"] == "TemplateError") {
      ASSERT_FALSE(text) << *text;
      EXPECT_THAT(text.error().message, HasSubstr(row["message"].get<std::string>()));
    } else {
      EXPECT_FALSE(text) << *text;
    }
  }
}

// Rows {ref, messages, options, ok}: what apply_chat_template gives for assistant prefill.
TEST(ChatTemplateGolden, ContinueFinalMessageAsTransformers) {
  std::string folder = std::string(LUCID_SOURCE_DIR) + "/tests/data/chat_templates/";
  Json templates = Json::parse(ReadFile(folder + "templates.json"));
  auto rows = ReadRows(folder + "prefill.jsonl");
  ASSERT_GT(rows.size(), 10u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    auto chat = ChatTemplate::Parse(templates[row["ref"].get<std::string>()].get<std::string>());
    ASSERT_TRUE(chat) << chat.error().message;
    auto text = chat->Render(row["messages"], {.continue_final_message = true,
                                               .bos_token = row["bos_token"],
                                               .eos_token = row["eos_token"],
                                               .now = kNow});
    if (row.contains("ok")) {
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, row["ok"].get<std::string>());
    } else {
      EXPECT_FALSE(text) << *text;
    }
  }
}

std::string MustRender(const std::string& source, const std::string& messages,
                       ChatTemplateOptions options = {}) {
  auto chat = ChatTemplate::Parse(source);
  if (!chat) return "parse error: " + chat.error().message;
  auto text = chat->Render(Json::parse(messages), options);
  return text ? *text : "error: " + text.error().message;
}

TEST(ChatMessages, ArgumentsBecomeObjectsOnlyWhereTheTemplateNeedsThem) {
  const std::string messages = R"([{"role":"user","content":"q"},{"role":"assistant","content":null,
    "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}])";
  const std::string loop =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}";
  const std::string end = "{% endfor %}{% endfor %}";
  EXPECT_EQ(MustRender(loop + "{{ c.function.name }} {{ c.function.arguments | tojson }}" + end,
                       messages),
            "qf {\"a\": 1}");
  EXPECT_EQ(MustRender(loop + "{{ c.function.name }} {{ c.function.arguments }}" + end, messages),
            "qf {\"a\":1}");
  EXPECT_EQ(
      MustRender(
          loop +
              "{{ c.function.name }}{% for k, v in c.function.arguments|items %} {{ k }}={{ v }}"
              "{% endfor %}" +
              end,
          messages),
      "qf a=1");
}

TEST(ChatMessages, ObjectArgumentsBecomeTextForTemplatesThatConcatenate) {
  EXPECT_EQ(MustRender("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                       "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}",
                       R"([{"role":"user","content":"q"},{"role":"assistant","content":"",
    "tool_calls":[{"function":{"name":"f","arguments":{"a":"é"}}}]}])"),
            "qf{\"a\": \"é\"}");
}

TEST(ChatMessages, DeepArgumentsStayText) {
  const std::string deep = R"({"a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  Json messages = Json::parse(R"([{"role":"user","content":"q"},{"role":"assistant","content":"x",
    "tool_calls":[{"function":{"name":"f"}}]}])");
  messages[1]["tool_calls"][0]["function"]["arguments"] = deep;
  auto chat = ChatTemplate::Parse(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
      "{% for k, v in c.function.arguments|items %} {{ k }}={{ v }}{% endfor %}{% endfor %}"
      "{% endfor %}");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_FALSE(chat->Render(messages, {}));  // items needs an object
}

TEST(ChatMessages, PartsGoToTemplatesThatTakeThem) {
  const std::string messages =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])";
  EXPECT_EQ(MustRender("{% for m in messages %}{{ m.content }}{% endfor %}", messages), "a\nb");
  EXPECT_EQ(
      MustRender(
          "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
          messages),
      "[a][b]");
  EXPECT_EQ(
      MustRender(
          "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
          R"([{"role":"user","content":"x"}])"),
      "[x]");
}

TEST(ChatMessages, BadShapesNameTheMessage) {
  const std::string plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(MustRender(plain, R"([{"role":"user","content":"a"}, 3])"),
              HasSubstr("messages[1] is not an object"));
  EXPECT_THAT(
      MustRender(plain, R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
      HasSubstr("messages[0].content[0] has the type 'image_url'"));
  EXPECT_THAT(MustRender(plain, R"({"role":"user"})"), HasSubstr("messages is not an array"));
  EXPECT_THAT(MustRender(plain, R"([{"content":"a"}])"), HasSubstr("messages[0] has no role"));
  EXPECT_THAT(MustRender(plain, R"([{"role":7,"content":"a"}])"),
              HasSubstr("messages[0].role is not a string"));
}

TEST(ChatMessages, ReasoningNamesAreOneThing) {
  EXPECT_EQ(
      MustRender("{% for m in messages %}{{ m.reasoning_content }}/{{ m.thinking }}{% endfor %}",
                 R"([{"role":"assistant","content":"a","reasoning":"why"}])"),
      "why/why");
}

TEST(ChatTemplate, VariablesReachTheTemplate) {
  ChatTemplateOptions options;
  options.variables = Json{{"enable_thinking", false}, {"documents", {{{"title", "t"}}}}};
  EXPECT_EQ(MustRender("{{ enable_thinking }} {{ documents[0].title }} {{ tools is none }}", "[]",
                       options),
            "False t True");
}

TEST(ChatTemplate, PrefillRefusesWhatItCannotContinue) {
  ChatTemplateOptions options{.continue_final_message = true};
  EXPECT_THAT(MustRender("{{ messages[0].content }}", "[]", options),
              HasSubstr("conversation is empty"));
  EXPECT_THAT(MustRender("{{ 'content' }}", R"([{"role":"assistant","content":"x"}])", options),
              HasSubstr("leaves out part of the final message"));
}

TEST(ChatTemplate, RaiseExceptionComesBackWithItsLine) {
  auto chat = ChatTemplate::Parse("a\n\n{{ raise_exception('Only user turns!') }}");
  ASSERT_TRUE(chat);
  auto text = chat->Render(Json::array(), {});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(text.error().message,
            "the chat template refused the messages at line 3: Only user turns!");
}

}  // namespace
}  // namespace lucid
