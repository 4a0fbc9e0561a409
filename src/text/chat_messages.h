// OpenAI-style messages in the shape a chat template expects. Templates disagree about it, so the
// shape is found once per template by rendering small probe conversations. Entry points:
// ProbeTraits at load, PrepareMessages per request. Neighbour: chat_template.cc, which calls both.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace lucid {

// What a template accepts. The defaults are the shape of most templates, and serve where probes
// tell nothing.
struct TemplateTraits {
  bool takes_text = true;    // content may be a string
  bool takes_parts = false;  // content may be an array of {"type": "text", "text": ...}
  // Arguments of a tool call may be JSON text as clients send them, or an object.
  bool takes_argument_text = false, takes_argument_object = true;
  // What an assistant message with tool calls and nothing to say holds as its content.
  enum class NoContent { kEmpty, kNull, kAbsent } no_content = NoContent::kEmpty;
};

// Renders the messages with the tools, without a generation prompt; nothing if the template fails.
using ProbeRender = std::function<std::optional<std::string>(const nlohmann::ordered_json& messages,
                                                             const nlohmann::ordered_json& tools)>;
TemplateTraits ProbeTraits(const ProbeRender& render);

// The messages as the template wants them:
// - members that are null are dropped, except content, which becomes "" (or what no_content says in
// an assistant
//   message with tool calls; there "" counts as no content too);
// - an array of text parts is joined with "\n" between the parts if the template does not take
// parts, and for tool
//   results; text becomes one part if the template takes nothing else;
// - tool call arguments are parsed to an object, or written as JSON text, where the template takes
// only that;
// - `reasoning_content`, `thinking` and `reasoning` are names of one thing: the first that is there
// fills
//   reasoning_content, and thinking if it is absent, as in transformers.
// kInvalidArgument names the message that is no object, or a part that is not text.
Result<nlohmann::ordered_json> PrepareMessages(const nlohmann::ordered_json& messages,
                                               const TemplateTraits& traits);

}  // namespace lucid
