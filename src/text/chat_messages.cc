// See chat_messages.h.
#include "text/chat_messages.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/jinja_template.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;
using NoContent = TemplateTraits::NoContent;

constexpr const char* kProbeText = "probe_text";
constexpr const char* kProbeTool = "probe_tool";
constexpr const char* kProbeValue = "probe_value";
constexpr const char* kProbeArguments = R"({"probe_key": "probe_value"})";

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Json UserProbe(Json content) {
  return Json::array({Json{{"role", "user"}, {"content", std::move(content)}}});
}

// A conversation with one tool call. The id has the nine letters and digits that some templates
// insist on.
Json ToolCallProbe(NoContent content, Json arguments) {
  Json call = {{"id", "abcde1234"},
               {"type", "function"},
               {"function", {{"name", kProbeTool}, {"arguments", std::move(arguments)}}}};
  Json assistant = {{"role", "assistant"}};
  if (content == NoContent::kEmpty) assistant["content"] = "";
  if (content == NoContent::kNull) assistant["content"] = nullptr;
  assistant["tool_calls"] = Json::array({std::move(call)});
  Json messages = UserProbe("question");
  messages.push_back(std::move(assistant));
  messages.push_back({{"role", "tool"},
                      {"tool_call_id", "abcde1234"},
                      {"name", kProbeTool},
                      {"content", "result"}});
  return messages;
}

Json ProbeTools() {
  Json parameters = {{"type", "object"}, {"properties", {{"probe_key", {{"type", "string"}}}}}};
  return Json::array({Json{{"type", "function"},
                           {"function",
                            {{"name", "other_tool"},
                             {"description", "a tool"},
                             {"parameters", std::move(parameters)}}}}});
}

bool CallIsThere(const std::string& text) {
  return Has(text, kProbeTool) && Has(text, kProbeValue) && !Has(text, "None");
}

// The call is in the text, and its arguments are what the model wrote: neither quoted again as a
// JSON string nor printed in Python's notation.
bool TextArgumentsWork(const std::string& text) {
  return CallIsThere(text) && Has(text, kProbeArguments);
}
bool ObjectArgumentsWork(const std::string& text) {
  return CallIsThere(text) && !Has(text, "'probe_key'");
}

void ProbeToolCalls(const ProbeRender& render, TemplateTraits* traits) {
  const Json tools = ProbeTools();
  for (NoContent content : {NoContent::kNull, NoContent::kEmpty, NoContent::kAbsent}) {
    auto with_text = render(ToolCallProbe(content, kProbeArguments), tools);
    auto with_object =
        render(ToolCallProbe(content, Json::object({{"probe_key", kProbeValue}})), tools);
    bool text = with_text && TextArgumentsWork(*with_text);
    bool object = with_object && ObjectArgumentsWork(*with_object);
    if (!text && !object) continue;
    traits->no_content = content;
    traits->takes_argument_text = text;
    traits->takes_argument_object = object;
    return;
  }
}

std::string JoinParts(const Json& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) text += "\n";
    text += parts[i]["text"].get_ref<const std::string&>();
  }
  return text;
}

Status CheckParts(const Json& parts, size_t message) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    auto type = part.is_object() ? part.find("type") : part.end();
    bool is_text = part.is_object() && (type == part.end() || *type == "text");
    if (!is_text) {
      std::string name =
          part.is_object() && type->is_string() ? type->get<std::string>() : "unknown";
      return Err(ErrorCode::kInvalidArgument,
                 "messages[{}].content[{}] has the type '{}'; only text parts are supported",
                 message, i, name);
    }
    auto text = part.find("text");
    if (text == part.end() || !text->is_string()) {
      return Err(ErrorCode::kInvalidArgument, "messages[{}].content[{}] has no text", message, i);
    }
  }
  return {};
}

void PrepareArguments(Json* calls, const TemplateTraits& traits) {
  if (!calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object()) continue;
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (arguments.is_string() && !traits.takes_argument_text && traits.takes_argument_object) {
      const auto& text = arguments.get_ref<const std::string&>();
      // What is no object stays text: it is what the model wrote, for the template to show.
      Result<Json> parsed = text.empty() ? Json::object() : ParseJson(text, "arguments");
      if (parsed && parsed->is_object()) arguments = *std::move(parsed);
    } else if (arguments.is_object() && !traits.takes_argument_object) {
      Result<std::string> text = jinja::DumpJson(arguments);
      if (text) arguments = *std::move(text);  // too deep to write: the template reports it
    }
  }
}

void AliasReasoning(Json* message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    auto found = message->find(name);
    if (found == message->end()) continue;
    Json reasoning = *found;
    if (!message->contains("thinking")) (*message)["thinking"] = reasoning;
    (*message)["reasoning_content"] = std::move(reasoning);
    return;
  }
}

bool SaysNothing(const Json& message) {
  auto content = message.find("content");
  return content == message.end() || content->is_null() || *content == "" ||
         *content == Json::array();
}

Status PrepareContent(Json* message, size_t index, const TemplateTraits& traits) {
  if (!message->contains("content") || (*message)["content"].is_null()) (*message)["content"] = "";
  Json& content = (*message)["content"];
  bool tool = message->value("role", "") == "tool";
  if (content.is_array()) {
    LUCID_RETURN_IF_ERROR(CheckParts(content, index));
    if (tool || !traits.takes_parts) {
      content = JoinParts(content);
    }
  } else if (content.is_string() && !traits.takes_text && traits.takes_parts && !tool) {
    content = Json::array({Json{{"type", "text"}, {"text", content}}});
  }
  return {};
}

Result<Json> PrepareMessage(const Json& original, size_t index, const TemplateTraits& traits) {
  if (!original.is_object()) {
    return Err(ErrorCode::kInvalidArgument, "messages[{}] is not an object", index);
  }
  Json message = Json::object();
  for (const auto& [key, value] : original.items()) {
    if (!value.is_null() || key == "content") message[key] = value;
  }
  auto role = message.find("role");
  if (role == message.end()) {
    return Err(ErrorCode::kInvalidArgument, "messages[{}] has no role", index);
  }
  if (!role->is_string()) {
    return Err(ErrorCode::kInvalidArgument, "messages[{}].role is not a string", index);
  }
  auto calls = message.find("tool_calls");
  bool has_calls = calls != message.end() && calls->is_array() && !calls->empty();
  if (has_calls) PrepareArguments(&*calls, traits);
  AliasReasoning(&message);
  if (!has_calls || !SaysNothing(message) || traits.no_content == NoContent::kEmpty) {
    if (has_calls && SaysNothing(message)) message["content"] = "";
    LUCID_RETURN_IF_ERROR(PrepareContent(&message, index, traits));
  } else if (traits.no_content == NoContent::kNull) {
    message["content"] = nullptr;
  } else {
    message.erase("content");
  }
  return message;
}

}  // namespace

TemplateTraits ProbeTraits(const ProbeRender& render) {
  TemplateTraits traits;
  const Json no_tools = nullptr;
  auto text = render(UserProbe(kProbeText), no_tools);
  auto parts =
      render(UserProbe(Json::array({Json{{"type", "text"}, {"text", kProbeText}}})), no_tools);
  traits.takes_parts =
      parts && Has(*parts, kProbeText) && !Has(*parts, "'type'") && !Has(*parts, "\"type\"");
  traits.takes_text = (text && Has(*text, kProbeText)) || !traits.takes_parts;
  ProbeToolCalls(render, &traits);
  return traits;
}

Result<Json> PrepareMessages(const Json& messages, const TemplateTraits& traits) {
  if (!messages.is_array()) return Err(ErrorCode::kInvalidArgument, "messages is not an array");
  Json prepared = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    LUCID_ASSIGN_OR_RETURN(Json message, PrepareMessage(messages[i], i, traits));
    prepared.push_back(std::move(message));
  }
  return prepared;
}

}  // namespace lucid
