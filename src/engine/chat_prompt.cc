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

// Where `text` spells a control token, ascending.
std::vector<size_t> ControlTokenStarts(const std::string& text,
                                       const std::vector<AddedToken>& added) {
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
  return starts;
}

// The strings among the data that spell a control token.
void CollectSpelling(const Json& value, const std::vector<AddedToken>& added,
                     std::vector<std::string>& found) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (ControlTokenStarts(text, added).empty()) return;
    // Templates often trim what they print.
    const size_t first = text.find_first_not_of(" \t\r\n");
    found.push_back(text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first));
  } else if (value.is_structured()) {
    for (const Json& element : value) CollectSpelling(element, added, found);
  }
}

// Puts the mark after the first byte of every place where a control token is spelled.
void MarkStrings(Json& value, const std::vector<AddedToken>& added, std::string_view mark) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    const std::vector<size_t> starts = ControlTokenStarts(text, added);
    for (auto at = starts.rbegin(); at != starts.rend(); ++at) text.insert(*at + 1, mark);
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

// The variables of a template that hold data of others; the rest are settings of the caller.
constexpr const char* kDataVariables[] = {"tools", "documents"};

// Where the rendered `prompt` spells control tokens that came with the data. Renders once more with
// marks in them; a template that measures or compares the data gives another text then, and the
// strings are looked for as they are.
std::vector<size_t> PlainStarts(const ChatTemplate& chat_template, const std::string& prompt,
                                const Json& messages, const ChatTemplateOptions& options,
                                const std::vector<AddedToken>& added) {
  std::vector<std::string> spelling;
  CollectSpelling(messages, added, spelling);
  for (const char* name : kDataVariables) {
    if (options.variables.contains(name)) CollectSpelling(options.variables[name], added, spelling);
  }
  if (spelling.empty()) return {};

  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const std::string mark = FindUnusedMark(dump(messages) + dump(options.variables));
  if (!mark.empty()) {
    Json marked = messages;
    ChatTemplateOptions marked_options = options;
    MarkStrings(marked, added, mark);
    for (const char* name : kDataVariables) {
      if (options.variables.contains(name)) {
        MarkStrings(marked_options.variables[name], added, mark);
      }
    }
    if (Result<std::string> text = chat_template.Render(marked, marked_options)) {
      std::vector<size_t> starts = TakeMarks(*text, mark);
      if (*text == prompt) return starts;
    }
  }
  std::vector<size_t> starts;
  for (const std::string& text : spelling) {
    const std::vector<size_t> inside = ControlTokenStarts(text, added);
    for (size_t at = prompt.find(text); at != std::string::npos; at = prompt.find(text, at + 1)) {
      for (const size_t start : inside) starts.push_back(at + start);
    }
  }
  std::sort(starts.begin(), starts.end());
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

  ChatPrompt prompt;
  LUCID_ASSIGN_OR_RETURN(prompt.text, chat_template.Render(messages, options));
  const std::vector<size_t> plain_starts =
      PlainStarts(chat_template, prompt.text, messages, options, vocab.added);
  prompt.ids = tokenizer.Encode(prompt.text, {.add_special = false,
                                              .added_tokens = AddedTokenMode::kParseSpecial,
                                              .plain_starts = plain_starts});
  return prompt;
}

}  // namespace lucid
