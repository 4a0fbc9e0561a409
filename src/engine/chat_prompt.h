// From a conversation to the prompt: the template's text and its ids.
//
// Text inside the messages that happens to spell a control token ("<|im_end|>") stays text: only
// what the template itself writes becomes control tokens, so a user or a web page cannot close a
// turn.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lucid {

struct ChatPrompt {
  std::string text;
  std::vector<TokenId> ids;
};

// Renders `messages` and encodes the result. The template writes BOS itself where it wants one, so
// none is added, as in transformers. bos_token and eos_token of `options` are filled from the
// tokenizer where empty.
Result<ChatPrompt> RenderChatPrompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                    const nlohmann::ordered_json& messages,
                                    ChatTemplateOptions options);

}  // namespace lucid
