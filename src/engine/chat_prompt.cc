#include "engine/chat_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// Unicode's noncharacters U+FDD0 to U+FDEF never stand for text, so one that the messages do not
// hold can mark a place.
constexpr int kFirstMark = 0xFDD0, kLastMark = 0xFDEF;

std::string MarkText(int code) {
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

std::string FindUnusedMark(const std::string& messages) {
  for (int code = kFirstMark; code <= kLastMark; ++code) {
    if (messages.find(MarkText(code)) == std::string::npos) return MarkText(code);
  }
  return "";
}

// Puts the mark after the first byte of every place where a control token is spelled.
void MarkControlTokens(std::string& text, const std::vector<AddedToken>& added,
                       std::string_view mark) {
  std::vector<size_t> starts;
  for (const AddedToken& token : added) {
    if (!token.special || token.content.empty()) continue;
    for (size_t at = text.find(token.content); at != std::string::npos;
         at = text.find(token.content, at + 1)) {
      starts.push_back(at);
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  for (auto at = starts.rbegin(); at != starts.rend(); ++at) text.insert(*at + 1, mark);
}

void MarkStrings(Json& value, const std::vector<AddedToken>& added, std::string_view mark) {
  if (value.is_string()) {
    MarkControlTokens(value.get_ref<std::string&>(), added, mark);
  } else if (value.is_structured()) {
    for (Json& element : value) MarkStrings(element, added, mark);
  }
}

// Takes the marks out of `text`; returns where the tokens they stood in begin.
std::vector<size_t> TakeMarks(std::string& text, std::string_view mark) {
  std::vector<size_t> starts;
  std::string clean;
  size_t at = 0;
  while (true) {
    const size_t found = text.find(mark, at);
    clean.append(text, at, found == std::string::npos ? std::string::npos : found - at);
    if (found == std::string::npos) break;
    if (!clean.empty()) starts.push_back(clean.size() - 1);
    at = found + mark.size();
  }
  text = std::move(clean);
  return starts;
}

std::string PieceOrEmpty(const Tokenizer& tokenizer, TokenId id) {
  return id >= 0 ? std::string(tokenizer.PieceText(id)) : std::string();
}

}  // namespace

Result<ChatPrompt> RenderChatPrompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                    const Json& messages, ChatTemplateOptions options) {
  const VocabSpec& vocab = tokenizer.spec();
  if (options.bos_token.empty()) options.bos_token = PieceOrEmpty(tokenizer, vocab.bos_id);
  if (options.eos_token.empty()) options.eos_token = PieceOrEmpty(tokenizer, vocab.eos_id);

  Json marked = messages;
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const std::string mark = FindUnusedMark(dump(messages) + dump(options.variables));
  if (mark.empty()) {
    return Err(ErrorCode::kInvalidArgument,
               "the messages hold every Unicode noncharacter from U+FDD0 to U+FDEF");
  }
  MarkStrings(marked, vocab.added, mark);
  MarkStrings(options.variables, vocab.added,
              mark);  // documents and tool descriptions are data too

  ChatPrompt prompt;
  LUCID_ASSIGN_OR_RETURN(prompt.text, chat_template.Render(marked, options));
  const std::vector<size_t> plain_starts = TakeMarks(prompt.text, mark);
  prompt.ids = tokenizer.Encode(prompt.text, {.add_special = false,
                                              .added_tokens = AddedTokenMode::kParseSpecial,
                                              .plain_starts = plain_starts});
  return prompt;
}

}  // namespace lucid
