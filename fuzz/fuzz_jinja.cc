// Fuzzes the template evaluator: the bytes are a template, rendered over a fixed small
// conversation.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/jinja_template.h"

namespace {

nlohmann::ordered_json Conversation() {
  return nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "H\u00e9llo <b>"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]},
      {"role": "tool", "content": [{"type": "text", "text": "20"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json kContext = Conversation();
  auto program = lucid::jinja::Template::Parse({reinterpret_cast<const char*>(data), size});
  if (!program) return 0;
  // Small enough that no input counts as a hang.
  constexpr lucid::jinja::Limits kLimits{.steps = 200'000, .bytes = 8u << 20};
  auto text = program->Render(kContext, kLimits, 1'700'000'000);
  return text || !text.error().message.empty() ? 0 : -1;
}
