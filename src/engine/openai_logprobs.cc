#include "engine/openai_logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/jinja_text.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

// Characters, counted by their first bytes.
int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string Spelled(const Tokenizer* tokenizer, TokenId id) {
  return tokenizer == nullptr ? std::string() : std::string(tokenizer->PieceBytes(id));
}

Json TokenJson(const Tokenizer* tokenizer, TokenId id, float logprob) {
  const std::string bytes = Spelled(tokenizer, id);
  Json values = Json::array();
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return {{"token", bytes}, {"logprob", JsonNumber(logprob)}, {"bytes", std::move(values)}};
}

// A token's text; where it is not UTF-8 by itself, its bytes as "bytes:\xe2\x82".
std::string Shown(const std::string& bytes) {
  if (jinja::IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return text;
}

// Members of an object have different names: of tokens with one text the most likely, which comes
// first, stays.
Json TopLogprobs(const Tokenizer* tokenizer, std::span<const TokenProb> list) {
  Json top = Json::object();
  for (const TokenProb& other : list) {
    const std::string text = Shown(Spelled(tokenizer, other.id));
    if (!top.contains(text)) top[text] = JsonNumber(other.logprob);
  }
  return top;
}

}  // namespace

Json JsonNumber(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}

Json ChatLogprobs(const Tokenizer* tokenizer, std::span<const ScoredToken> tokens) {
  Json content = Json::array();
  for (const ScoredToken& token : tokens) {
    if (!token.logprobs) continue;
    Json entry = TokenJson(tokenizer, token.id, token.logprobs->chosen);
    entry["top_logprobs"] = Json::array();
    for (const TokenProb& other : token.logprobs->top) {
      entry["top_logprobs"].push_back(TokenJson(tokenizer, other.id, other.logprob));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json TextLogprobs(const Tokenizer* tokenizer, std::span<const ScoredToken> tokens,
                  int64_t& offset) {
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  for (const ScoredToken& token : tokens) {
    const std::string bytes = Spelled(tokenizer, token.id);
    const auto& scores = token.logprobs;
    json["tokens"].push_back(Shown(bytes));
    json["token_logprobs"].push_back(scores ? JsonNumber(scores->chosen) : Json(nullptr));
    json["top_logprobs"].push_back(scores ? TopLogprobs(tokenizer, scores->top) : Json(nullptr));
    json["text_offset"].push_back(offset);
    offset += CountCharacters(bytes);
  }
  return json;
}

}  // namespace lucid
