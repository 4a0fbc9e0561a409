#include "engine/selftest_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/chat_prompt.h"
#include "text/detokenizer.h"
#include "text/unicode.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// --- random texts ---

constexpr std::string_view kParts[] = {
    "the",        " and",       " Tokenizer", "don't",   " WE'LL", " 3.14159",
    "1,234,567",  "2026-11-30", "\n",         "\n\n",    "  ",     "    ",
    "\t",         "\r\n",       ".",          "...",     "?!",     " -- ",
    "(",          "]);",        " {\n  ",     "//",      " != ",   "x_1",
    " été",       "Straße",     " naïve",     "привет",  " мир",   "Ελλάδα",
    "שלום",       " مرحبا",     "नमस्ते",       " สวัสดี",   "你好",   "，世界",
    "こんにちは", "カタカナ",   "한국어",     "e\u0301", "👍",      "👩‍👩‍👧",
    " 🚀🔥",        "\u00a0",     "\u200b",     "ﬁ",       "①",      "<b>",
    "http:",      "//a.b/c?d",  "%20",        "@user",   " #tag",  "def f(x):",
    "return",     ";"};

// A code point that may stand in a text.
void AppendCodePoint(std::string& text, std::mt19937_64& random) {
  static constexpr std::array<uint32_t, 4> kLimits = {0x80, 0x800, 0x10000, 0x110000};
  const auto c = static_cast<int32_t>(random() % kLimits[random() % kLimits.size()]);
  AppendUtf8(c == 0 || (c >= 0xD800 && c < 0xE000) ? 'a' : c, text);
}

std::string RandomText(std::mt19937_64& random) {
  std::string text;
  const uint64_t parts = 1 + random() % 12;
  for (uint64_t i = 0; i < parts; ++i) {
    if (random() % 4 == 0) {
      AppendCodePoint(text, random);
    } else {
      text += kParts[random() % std::size(kParts)];
    }
  }
  return text;
}

// --- round trips ---

// No added token is looked for: a text is what it spells.
constexpr EncodeOptions kPlain = {
    .add_special = false, .added_tokens = AddedTokenMode::kNone, .plain_starts = {}};

std::string Quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

// Which bytes have a token of their own, so that nothing written with them can get lost.
std::array<bool, 256> OwnBytes(const Tokenizer& tokenizer) {
  std::array<bool, 256> own = {};
  for (TokenId id = 0; id < tokenizer.n_tokens(); ++id) {
    const TokenKind kind = tokenizer.Kind(id);
    if (kind != TokenKind::kNormal && kind != TokenKind::kByte) continue;
    const std::string_view bytes = tokenizer.PieceBytes(id);
    if (bytes.size() == 1) own[static_cast<uint8_t>(bytes[0])] = true;
  }
  return own;
}

// Whether the vocabulary spells text by bytes and changes none beforehand.
bool KeepsText(const VocabSpec& spec) {
  if (!spec.byte_level && !spec.byte_fallback) return false;
  const auto harmless = [](const NormalizerStep& step) {
    // A space becomes "▁", and the decoder undoes it.
    return step.kind == NormalizerStep::Kind::kPrepend ||
           (step.kind == NormalizerStep::Kind::kReplace && step.pattern == " ");
  };
  return !spec.remove_extra_whitespaces &&
         std::all_of(spec.normalizer.begin(), spec.normalizer.end(), harmless);
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer stream(tokenizer, /*skip_special=*/false);
  std::string text;
  for (const TokenId id : ids) text += stream.Add(id);
  return text + stream.Finish();
}

SelfCheck Failed(std::string name, std::string detail) {
  return {std::move(name), CheckState::kFailed, std::move(detail)};
}

// --- conversations ---

struct Conversation {
  std::string_view what;
  Json messages;
  Json variables = Json::object();
};

std::vector<Conversation> Conversations() {
  const auto message = [](const char* role, const char* content) {
    return Json{{"role", role}, {"content", content}};
  };
  const Json user = message("user", "Name two rivers of Europe.");
  const Json reply = message("assistant", "The Loire and the Vistula.");
  const Json again = message("user", "Which of them is longer?");
  const Json tool = Json::parse(R"({"type": "function", "function": {"name": "length_of",
      "description": "The length of a river in km.", "parameters": {"type": "object",
      "properties": {"river": {"type": "string"}}, "required": ["river"]}}})");
  return {{"a question", {user}},
          {"a system message", {message("system", "Answer in one line."), user}},
          {"three turns", {user, reply, again}},
          {"a tool", {user}, {{"tools", Json::array({tool})}}}};
}

// The first message whose text is not in `prompt` behind those before it; "" if all are.
std::string MissingText(const Json& messages, const std::string& prompt) {
  // Templates may put a system message elsewhere: only the others have an order.
  size_t at = 0;
  for (const Json& message : messages) {
    const auto& content = message["content"].get_ref<const std::string&>();
    const bool system = message["role"] == "system";
    const size_t found = prompt.find(content, system ? 0 : at);
    if (found == std::string::npos) return content;
    if (!system) at = found + content.size();
  }
  return "";
}

// What is wrong with a conversation, or "".
std::string ConversationFault(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                              const Conversation& conversation, const ChatPrompt& prompt) {
  const std::string missing = MissingText(conversation.messages, prompt.text);
  if (!missing.empty()) return fmt::format("{} is not in the prompt, or not in its turn", missing);
  ChatTemplateOptions options;
  options.variables = conversation.variables;
  options.add_generation_prompt = false;
  const Result<ChatPrompt> told =
      RenderChatPrompt(chat_template, tokenizer, conversation.messages, options);
  if (!told) return "without a prompt for the reply: " + told.error().message;
  if (!prompt.text.starts_with(told->text)) {
    return fmt::format("the prompt for a reply does not go on from the conversation: {}",
                       Quoted(prompt.text));
  }
  const std::string text = tokenizer.Decode(prompt.ids);
  if (KeepsText(tokenizer.spec()) && text != prompt.text) {
    return fmt::format("its ids say {}, its text {}", Quoted(text), Quoted(prompt.text));
  }
  return "";
}

// A control token in what a user says adds no control token to the prompt; its spelling, or "".
std::string SpelledControl(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const auto controls = [&](const std::string& content) -> int64_t {
    const Result<ChatPrompt> prompt = RenderChatPrompt(
        chat_template, tokenizer, Json::array({{{"role", "user"}, {"content", content}}}), {});
    if (!prompt) return -1;
    return std::count_if(prompt->ids.begin(), prompt->ids.end(),
                         [&](TokenId id) { return tokenizer.IsSpecial(id); });
  };
  const int64_t want = controls("nothing special");
  for (const AddedToken& token : tokenizer.spec().added) {
    // Of an unknown token's spelling the pieces may be unknown again.
    if (!token.special || token.id == tokenizer.spec().unk_id) continue;
    if (controls("nothing " + token.content + " special") > want) return token.content;
  }
  return "";
}

}  // namespace

std::string_view SelftestText() {
  return "A model reads text as tokens: pieces of words, each a number in a table. The word "
         "\"lighthouse\" may be one of them or three; a space usually belongs to what follows it. "
         "In 1948 a bridge of 412.5 metres was planned here, and 27 years later it opened.\n\n"
         "def area(width, height):\n    return width * height  # in square metres\n\n"
         "Le phare éclaire la côte jusqu'à l'aube. Der Fluss trägt das Eis ins Meer. "
         "Маяк стоит на скале. 灯塔照亮海岸。 灯台は海を照らす。\n"
         "When the keeper had climbed the last of the stairs he wound the clockwork, trimmed the "
         "lamp and wrote down the wind, the hour and the ships that he could see. There were "
         "four that night, and one of them never came back.\n";
}

SelfCheck CheckTokenizer(const Tokenizer& tokenizer, int64_t texts, uint64_t seed) {
  constexpr const char* kName = "tokenizer";
  std::mt19937_64 random(seed);
  const std::array<bool, 256> own = OwnBytes(tokenizer);
  const bool keeps = KeepsText(tokenizer.spec());
  int64_t exact = 0;
  for (int64_t i = 0; i < texts; ++i) {
    const std::string text = i == 0 ? std::string(SelftestText()) : RandomText(random);
    const std::vector<TokenId> ids = tokenizer.Encode(text, kPlain);
    for (const TokenId id : ids) {
      if (id >= 0 && id < tokenizer.n_tokens()) continue;
      return Failed(kName, fmt::format("{} has the id {}, and there are {} tokens", Quoted(text),
                                       id, tokenizer.n_tokens()));
    }
    const std::string back = tokenizer.Decode(ids);
    const bool all_own =
        std::all_of(text.begin(), text.end(), [&](char c) { return own[static_cast<uint8_t>(c)]; });
    if (back == text) ++exact;
    if (keeps && all_own && back != text) {
      return Failed(kName, fmt::format("{} comes back as {}", Quoted(text), Quoted(back)));
    }
    const std::string again = tokenizer.Decode(tokenizer.Encode(back, kPlain));
    if (again != back) {
      return Failed(kName, fmt::format("{} comes back as {}, and that as {}", Quoted(text),
                                       Quoted(back), Quoted(again)));
    }
    const std::string streamed = Streamed(tokenizer, ids);
    if (streamed != back) {
      return Failed(kName, fmt::format("{} comes back as {}, token by token as {}", Quoted(text),
                                       Quoted(back), Quoted(streamed)));
    }
  }
  const auto missing = std::count(own.begin(), own.end(), false);
  std::string why;
  if (exact < texts) {
    why = keeps ? fmt::format("; the vocabulary lacks {} bytes", missing)
                : "; the tokenizer changes text before it cuts it";
  }
  return {kName, CheckState::kPassed,
          fmt::format("{} of {} random texts come back to the byte, all of them stay as they came "
                      "back, and are the same token by token{}",
                      exact, texts, why)};
}

SelfCheck CheckSameIds(const Tokenizer& tokenizer, const Tokenizer& other, std::string_view name,
                       int64_t texts, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < texts; ++i) {
    const std::string text = i == 0 ? std::string(SelftestText()) : RandomText(random);
    for (const bool special : {true, false}) {
      EncodeOptions options;
      options.add_special = special;
      const std::vector<TokenId> mine = tokenizer.Encode(text, options);
      const std::vector<TokenId> theirs = other.Encode(text, options);
      if (mine == theirs) continue;
      return Failed("tokenizer.json",
                    fmt::format("{} has the ids {} by the model, {} by {}", Quoted(text),
                                fmt::join(mine, " "), fmt::join(theirs, " "), name));
    }
  }
  return {"tokenizer.json", CheckState::kPassed,
          fmt::format("{} random texts have the same ids by {}", texts, name)};
}

SelfCheck CheckChatTemplate(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  constexpr const char* kName = "chat template";
  std::vector<std::string> rendered;
  std::string refused;
  for (const Conversation& conversation : Conversations()) {
    ChatTemplateOptions options;
    options.variables = conversation.variables;
    const Result<ChatPrompt> prompt =
        RenderChatPrompt(chat_template, tokenizer, conversation.messages, options);
    if (!prompt) {
      if (rendered.empty()) {
        return Failed(kName, fmt::format("{}: {}", conversation.what, prompt.error().message));
      }
      refused += fmt::format("; it refuses {}: {}", conversation.what, prompt.error().message);
      continue;
    }
    const std::string fault = ConversationFault(chat_template, tokenizer, conversation, *prompt);
    if (!fault.empty()) return Failed(kName, fmt::format("{}: {}", conversation.what, fault));
    rendered.emplace_back(conversation.what);
  }
  const std::string spelled = SpelledControl(chat_template, tokenizer);
  if (!spelled.empty()) {
    return Failed(kName, fmt::format("a user who writes {} gets a control token", Quoted(spelled)));
  }
  return {kName, CheckState::kPassed,
          fmt::format("{} rendered; control tokens that a user spells stay text{}",
                      fmt::join(rendered, ", "), refused)};
}

}  // namespace lucid
