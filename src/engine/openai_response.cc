#include "engine/openai_response.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <utility>

#include "base/rng.h"
#include "text/jinja_text.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

const char* ErrorType(int status) {
  return status < 500 ? "invalid_request_error" : "server_error";
}

Json CodeOf(const ApiError& error) {
  if (!error.code.empty()) return error.code;
  switch (error.error.code) {
    case ErrorCode::kContextLength:
      return "context_length_exceeded";
    case ErrorCode::kCapacity:
      return "insufficient_capacity";
    case ErrorCode::kUnsupported:
      return "unsupported_parameter";
    default:
      return nullptr;
  }
}

// Characters, counted by their first bytes.
int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

Json JsonNumber(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}

int HttpStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kContextLength:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kCapacity:
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kInvalidFile:
    case ErrorCode::kIo:
      return 500;
  }
  return 500;
}

Json ErrorBody(const ApiError& error) {
  return {{"error",
           {{"message", error.error.message},
            {"type", ErrorType(HttpStatus(error.error.code))},
            {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
            {"code", CodeOf(error)}}}};
}

std::string NewApiId(std::string_view prefix) {
  static const std::array<uint32_t, 2> kKey = [] {
    std::random_device device;
    return std::array<uint32_t, 2>{device(), device()};
  }();
  static std::atomic<uint32_t> counter{0};
  const std::array<uint32_t, 4> words = Philox4x32({counter.fetch_add(1), 0, 0, 0}, kKey);
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, words[0], words[1], words[2]);
}

Json CacheFigures(const RequestStats& stats) {
  Json figures = {{"bytes", stats.kv_bytes},
                  {"evicted_tokens", stats.eviction.evicted_tokens},
                  {"evictions", stats.eviction.evictions},
                  {"attention_dropped", stats.eviction.dropped_share()}};
  if (stats.audit) {
    figures["audit"] = {{"positions", stats.audit->positions},
                        {"mean_kl", JsonNumber(stats.audit->mean_kl)},
                        {"max_kl", JsonNumber(stats.audit->max_kl)},
                        {"same_top1", stats.audit->same_top1}};
  }
  return figures;
}

struct CompletionBuilder::Choice {
  struct Token {
    TokenId id = -1;
    LogprobResult logprobs;
  };
  std::string text;
  std::vector<Token> tokens;  // where log-probabilities were asked for
  StopCause cause = StopCause::kNone;
  double score = 0;
  RequestStats stats;
};

CompletionBuilder::CompletionBuilder(const ApiRequest& request, const Tokenizer* tokenizer,
                                     std::string model)
    : endpoint_(request.endpoint),
      model_(std::move(model)),
      seed_(request.request.sampling.seed),
      beams_(request.request.beam.width > 0),
      tokenizer_(tokenizer),
      created_(std::time(nullptr)),
      choices_(static_cast<size_t>(std::max(request.request.n, 1))) {}
CompletionBuilder::~CompletionBuilder() = default;
CompletionBuilder::CompletionBuilder(CompletionBuilder&&) noexcept = default;
CompletionBuilder& CompletionBuilder::operator=(CompletionBuilder&&) noexcept = default;

void CompletionBuilder::Add(const TokenOutput& output) {
  Choice& choice = choices_[static_cast<size_t>(output.index)];
  choice.text += output.text;
  if (output.logprobs && output.id >= 0) choice.tokens.push_back({output.id, *output.logprobs});
  if (output.error && !error_) error_ = output.error;
  if (output.cause == StopCause::kNone) return;
  choice.cause = output.cause;
  choice.score = output.score;
  choice.stats = output.stats;
}

int64_t CompletionBuilder::prompt_tokens() const {
  return choices_[0].stats.prompt_tokens;
}

int64_t CompletionBuilder::cached_tokens() const {
  return choices_[0].stats.cached_tokens;
}

int64_t CompletionBuilder::generated_tokens() const {
  int64_t sum = 0;
  for (const Choice& choice : choices_) sum += choice.stats.generated_tokens;
  return sum;
}

namespace {

std::string Spelled(const Tokenizer* tokenizer, TokenId id) {
  return tokenizer == nullptr ? std::string() : std::string(tokenizer->PieceBytes(id));
}

Json TokenJson(const Tokenizer* tokenizer, TokenId id, float logprob) {
  const std::string bytes = Spelled(tokenizer, id);
  Json values = Json::array();
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return {{"token", bytes}, {"logprob", JsonNumber(logprob)}, {"bytes", std::move(values)}};
}

template <typename Tokens>
Json ChatLogprobs(const Tokenizer* tokenizer, const Tokens& tokens) {
  Json content = Json::array();
  for (const auto& token : tokens) {
    Json entry = TokenJson(tokenizer, token.id, token.logprobs.chosen);
    entry["top_logprobs"] = Json::array();
    for (const TokenProb& other : token.logprobs.top) {
      entry["top_logprobs"].push_back(TokenJson(tokenizer, other.id, other.logprob));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
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

template <typename Tokens>
Json TextLogprobs(const Tokenizer* tokenizer, const Tokens& tokens) {
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  int64_t offset = 0;
  for (const auto& token : tokens) {
    const std::string bytes = Spelled(tokenizer, token.id);
    json["tokens"].push_back(Shown(bytes));
    json["token_logprobs"].push_back(JsonNumber(token.logprobs.chosen));
    json["top_logprobs"].push_back(TopLogprobs(tokenizer, token.logprobs.top));
    json["text_offset"].push_back(offset);
    offset += CountCharacters(bytes);
  }
  return json;
}

}  // namespace

Json CompletionBuilder::ChoiceJson(size_t index) const {
  const Choice& choice = choices_[index];
  const bool chat = endpoint_ == ApiEndpoint::kChat;
  Json json = {{"index", index}};
  if (chat) {
    json["message"] = {{"role", "assistant"}, {"content", choice.text}};
  } else {
    json["text"] = choice.text;
  }
  json["logprobs"] = choice.tokens.empty() ? Json(nullptr)
                     : chat                ? ChatLogprobs(tokenizer_, choice.tokens)
                                           : TextLogprobs(tokenizer_, choice.tokens);
  json["finish_reason"] = FinishReason(choice.cause);
  json["stop_cause"] = StopCauseName(choice.cause);
  if (beams_) json["score"] = JsonNumber(choice.score);
  json["kv"] = CacheFigures(choice.stats);
  return json;
}

Json CompletionBuilder::Body() const {
  const bool chat = endpoint_ == ApiEndpoint::kChat;
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(ChoiceJson(i));
  const RequestStats& first = choices_[0].stats;
  const int64_t generated = generated_tokens();
  double decode_seconds = 0;
  for (const Choice& choice : choices_) {
    decode_seconds = std::max(decode_seconds, choice.stats.decode_seconds);
  }
  return {{"id", NewApiId(chat ? "chatcmpl-" : "cmpl-")},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", created_},
          {"model", model_},
          {"choices", std::move(choices)},
          {"usage",
           {{"prompt_tokens", first.prompt_tokens},
            {"completion_tokens", generated},
            {"total_tokens", first.prompt_tokens + generated},
            {"prompt_tokens_details", {{"cached_tokens", first.cached_tokens}}}}},
          {"seed", seed_},
          {"timings",
           {{"queue_seconds", first.queue_seconds},
            {"prefill_seconds", first.prefill_seconds},
            {"decode_seconds", decode_seconds},
            {"preemptions", first.preemptions}}}};
}

}  // namespace lucid
