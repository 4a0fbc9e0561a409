// ChatTemplate: messages to the prompt text, as Hugging Face transformers renders it.
//
// The template is Jinja source from the model file; it is untrusted, so its evaluation is bounded
// in steps, recursion and output. Message text is data and is never evaluated.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lucid {

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;   // assistant prefill: the last message is left open
  std::string bos_token{}, eos_token{};  // what `{{ bos_token }}` prints
  // Further variables of the context (tools, documents, enable_thinking, ...); an object.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::optional<std::time_t> now =
      std::nullopt;  // what strftime_now prints; the clock's time if not given
};

class ChatTemplate {
 public:
  // kInvalidFile with line and cause if the source is not valid Jinja.
  static Result<ChatTemplate> Parse(std::string source);

  // `messages`: an array of OpenAI-style messages, shaped for the template by PrepareMessages
  // (chat_messages.h). continue_final_message implies no generation prompt. kInvalidArgument
  // carries line and cause, which for raise_exception is the template's own message.
  Result<std::string> Render(const nlohmann::ordered_json& messages,
                             const ChatTemplateOptions& options) const;

  const std::string& source() const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid
