// See chat_template.h. The Jinja evaluator is jinja_template.h; chat_messages.h shapes the
// messages.
#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include "text/chat_messages.h"
#include "text/jinja_template.h"
#include "text/jinja_text.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// Marks the end of the message to continue while the template renders, with the space that tells
// whether the template trims messages.
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";

std::string_view Trimmed(std::string_view text) {
  return jinja::Strip(text, nullptr, true, true);
}

// Appends the tag to the last text of the final message and returns that text.
Result<std::string> TagFinalMessage(Json* messages) {
  if (messages->empty()) {
    return Err(ErrorCode::kInvalidArgument,
               "continue_final_message needs a message, but the conversation is empty");
  }
  Json& last = messages->back();
  auto content = last.find("content");
  Json* text = content != last.end() ? &*content : nullptr;
  if (text != nullptr && text->is_array()) {
    text = text->empty() ? nullptr : &text->back()["text"];
  }
  if (text == nullptr || !text->is_string()) {
    return Err(ErrorCode::kInvalidArgument,
               "continue_final_message needs text in the final message to continue");
  }
  std::string original = text->get<std::string>();
  *text = original + std::string(kTag);
  return original;
}

// The rendered text up to the end of the message that carries the tag.
Result<std::string> CutAtTag(std::string rendered, const std::string& message) {
  size_t tag = rendered.rfind(Trimmed(kTag));
  if (tag == std::string::npos || rendered.find(Trimmed(message)) == std::string::npos) {
    return Err(ErrorCode::kInvalidArgument,
               "continue_final_message cannot be used: the chat template leaves out part of the "
               "final message");
  }
  bool spaces_kept = rendered.compare(tag, kTag.size(), kTag) == 0;
  rendered.resize(tag);
  if (!spaces_kept) rendered.resize(jinja::Strip(rendered, nullptr, false, true).size());
  return rendered;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  jinja::Template program;
  TemplateTraits traits;
};

Result<ChatTemplate> ChatTemplate::Parse(std::string source) {
  LUCID_ASSIGN_OR_RETURN(jinja::Template program, jinja::Template::Parse(source));
  // Far more than a probe of three short messages needs, far less than a request may use.
  constexpr jinja::Limits kProbeLimits{.steps = 1'000'000, .bytes = 16u << 20};
  TemplateTraits traits = ProbeTraits([&](const Json& messages, const Json& tools) {
    Json context = {{"messages", messages},           {"tools", tools},  {"documents", nullptr},
                    {"add_generation_prompt", false}, {"bos_token", ""}, {"eos_token", ""}};
    Result<std::string> text = program.Render(context, kProbeLimits);
    return text ? std::optional<std::string>(*std::move(text)) : std::nullopt;
  });
  return ChatTemplate(std::make_unique<Impl>(Impl{std::move(source), std::move(program), traits}));
}

Result<std::string> ChatTemplate::Render(const Json& messages,
                                         const ChatTemplateOptions& options) const {
  LUCID_ASSIGN_OR_RETURN(Json prepared, PrepareMessages(messages, impl_->traits));
  std::string final_text;
  if (options.continue_final_message) {
    if (impl_->source.find("content") == std::string::npos) {
      return Err(ErrorCode::kInvalidArgument,
                 "continue_final_message cannot be used: the chat template reads no content");
    }
    LUCID_ASSIGN_OR_RETURN(final_text, TagFinalMessage(&prepared));
  }
  Json context = {
      {"tools", nullptr},
      {"documents", nullptr},
      {"bos_token", options.bos_token},
      {"eos_token", options.eos_token},
      {"add_generation_prompt", options.add_generation_prompt && !options.continue_final_message}};
  if (options.variables.is_object()) context.update(options.variables);
  context["messages"] = std::move(prepared);
  LUCID_ASSIGN_OR_RETURN(std::string text, impl_->program.Render(context, {}, options.now));
  return options.continue_final_message ? CutAtTag(std::move(text), final_text) : text;
}

const std::string& ChatTemplate::source() const {
  return impl_->source;
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

}  // namespace lucid
