#include "engine/openai_response.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "base/rng.h"

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

}  // namespace

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
  std::string text;
  std::vector<TokenId> ids;
  std::vector<ScoredToken> tokens;  // where log-probabilities were asked for
  double logprob_sum = 0;           // of them, for best_of
  StopCause cause = StopCause::kNone;
  double score = 0;
  RequestStats stats;
  bool begun = false;       // a first piece was made of it
  int64_t text_offset = 0;  // of the next token in pieces
};

// What the engine's thread finds out of a prompt's tokens before its first output: nobody reads it
// earlier.
struct CompletionBuilder::PromptScores {
  std::vector<LogprobResult> of_next;  // by position
};

CompletionBuilder::CompletionBuilder(const ApiRequest& request, const Tokenizer* tokenizer,
                                     std::string model)
    : request_(request),
      model_(std::move(model)),
      tokenizer_(tokenizer),
      id_(NewApiId(request.endpoint == ApiEndpoint::kChat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)) {
  const int32_t replies = std::max({request.request.n, request.best_of, 1});
  choices_.resize(static_cast<size_t>(n_prompts() * replies));
  if (!request.echo || request.request.n_logprobs < 0) return;
  for (int64_t i = 0; i < n_prompts(); ++i) scores_.push_back(std::make_shared<PromptScores>());
}
CompletionBuilder::~CompletionBuilder() = default;
CompletionBuilder::CompletionBuilder(CompletionBuilder&&) noexcept = default;
CompletionBuilder& CompletionBuilder::operator=(CompletionBuilder&&) noexcept = default;

Request CompletionBuilder::RequestOf(int64_t i) const {
  Request request = request_.RequestOf(i);
  if (scores_.empty()) return request;
  request.logits_from = 0;
  const int n_top = request.n_logprobs;
  request.on_logits = [scores = scores_[static_cast<size_t>(i)], n_top, prompt = request.prompt](
                          int64_t position, std::span<const float> logits) {
    const auto next = static_cast<size_t>(position) + 1;
    if (next >= prompt.size()) return;
    scores->of_next.push_back(RawLogprobs(logits, prompt[next], n_top));
  };
  return request;
}

size_t CompletionBuilder::IndexOf(const TokenOutput& output, int64_t prompt) const {
  const auto replies = static_cast<int64_t>(choices_.size()) / n_prompts();
  return static_cast<size_t>(prompt * replies + output.index);
}

void CompletionBuilder::Add(const TokenOutput& output, int64_t prompt) {
  Choice& choice = choices_[IndexOf(output, prompt)];
  choice.text += output.text;
  if (output.id >= 0) choice.ids.push_back(output.id);
  if (output.logprobs && output.id >= 0) {
    choice.tokens.push_back({output.id, output.logprobs});
    choice.logprob_sum += output.logprobs->chosen;
  }
  if (output.error && !error_) error_ = output.error;
  if (output.cause == StopCause::kNone) return;
  choice.cause = output.cause;
  choice.score = output.score;
  choice.stats = output.stats;
}

int64_t CompletionBuilder::prompt_tokens() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < n_prompts(); ++i) sum += choices_[IndexOf({}, i)].stats.prompt_tokens;
  return sum;
}

int64_t CompletionBuilder::cached_tokens() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < n_prompts(); ++i) sum += choices_[IndexOf({}, i)].stats.cached_tokens;
  return sum;
}

int64_t CompletionBuilder::generated_tokens() const {
  int64_t sum = 0;
  for (const Choice& choice : choices_) sum += choice.stats.generated_tokens;
  return sum;
}

std::vector<ReceiptReply> CompletionBuilder::Replies(int64_t i) const {
  std::vector<ReceiptReply> replies;
  const size_t count = choices_.size() / static_cast<size_t>(n_prompts());
  for (size_t r = 0; r < count; ++r) {
    const Choice& choice = choices_[static_cast<size_t>(i) * count + r];
    replies.push_back({static_cast<int32_t>(r), choice.ids, choice.cause});
  }
  return replies;
}

const RequestStats& CompletionBuilder::Stats(int64_t i) const {
  return choices_[IndexOf({}, i)].stats;
}

std::string CompletionBuilder::PromptText(int64_t prompt) const {
  if (!request_.echo || tokenizer_ == nullptr) return "";
  return tokenizer_->Decode(request_.RequestOf(prompt).prompt, /*skip_special=*/true);
}

std::vector<ScoredToken> CompletionBuilder::PromptTokens(int64_t prompt) const {
  std::vector<ScoredToken> tokens;
  if (scores_.empty()) return tokens;
  const std::vector<LogprobResult>& of_next = scores_[static_cast<size_t>(prompt)]->of_next;
  const std::vector<TokenId> ids = request_.RequestOf(prompt).prompt;
  for (size_t i = 0; i < ids.size(); ++i) {
    tokens.push_back({ids[i], {}});
    if (i > 0 && i <= of_next.size()) tokens.back().logprobs = of_next[i - 1];
  }
  return tokens;
}

Json CompletionBuilder::Logprobs(const std::vector<ScoredToken>& tokens, int64_t& offset) const {
  if (tokens.empty() || request_.hide_logprobs) return nullptr;
  if (request_.endpoint == ApiEndpoint::kChat) return ChatLogprobs(tokenizer_, tokens);
  return TextLogprobs(tokenizer_, tokens, offset);
}

// All replies; of a best_of the likeliest of each prompt, by the mean of their tokens'
// log-probabilities.
std::vector<size_t> CompletionBuilder::ChoicesToShow() const {
  std::vector<size_t> all(choices_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (request_.best_of == 0) return all;
  const auto mean = [this](size_t i) {
    const Choice& choice = choices_[i];
    return choice.logprob_sum / static_cast<double>(std::max<size_t>(choice.tokens.size(), 1));
  };
  std::vector<size_t> shown;
  for (int64_t p = 0; p < n_prompts(); ++p) {
    const auto begin = all.begin() + p * request_.best_of;
    std::stable_sort(begin, begin + request_.best_of,
                     [&](size_t a, size_t b) { return mean(a) > mean(b); });
    shown.insert(shown.end(), begin, begin + request_.request.n);
  }
  return shown;
}

Json CompletionBuilder::ChoiceJson(size_t index, size_t shown_as) const {
  const Choice& choice = choices_[index];
  const auto prompt =
      static_cast<int64_t>(index) * n_prompts() / static_cast<int64_t>(choices_.size());
  Json json = {{"index", shown_as}};
  if (request_.endpoint == ApiEndpoint::kChat) {
    json["message"] = {{"role", "assistant"}, {"content", choice.text}};
  } else {
    json["text"] = PromptText(prompt) + choice.text;
  }
  std::vector<ScoredToken> tokens = PromptTokens(prompt);
  tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
  int64_t offset = 0;
  json["logprobs"] = Logprobs(tokens, offset);
  json["finish_reason"] = FinishReason(choice.cause);
  json["stop_cause"] = StopCauseName(choice.cause);
  if (request_.request.beam.width > 0) json["score"] = JsonNumber(choice.score);
  json["kv"] = CacheFigures(choice.stats);
  return json;
}

Json CompletionBuilder::Usage() const {
  const int64_t prompt = prompt_tokens();
  const int64_t generated = generated_tokens();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens()}}}};
}

Json CompletionBuilder::Timings() const {
  const RequestStats& first = choices_[0].stats;
  double decode_seconds = 0;
  for (const Choice& choice : choices_) {
    decode_seconds = std::max(decode_seconds, choice.stats.decode_seconds);
  }
  return {{"queue_seconds", first.queue_seconds},
          {"prefill_seconds", first.prefill_seconds},
          {"decode_seconds", decode_seconds},
          {"preemptions", first.preemptions}};
}

Json CompletionBuilder::Head(bool chunk) const {
  const bool chat = request_.endpoint == ApiEndpoint::kChat;
  return {{"id", id_},
          {"object", !chat   ? "text_completion"
                     : chunk ? "chat.completion.chunk"
                             : "chat.completion"},
          {"created", created_},
          {"model", model_}};
}

Json CompletionBuilder::Body() const {
  Json choices = Json::array();
  for (const size_t index : ChoicesToShow()) choices.push_back(ChoiceJson(index, choices.size()));
  Json body = Head(/*chunk=*/false);
  body["choices"] = std::move(choices);
  body["usage"] = Usage();
  body["seed"] = request_.request.sampling.seed;
  body["timings"] = Timings();
  if (!request_.ignored.empty()) body["ignored"] = request_.ignored;
  return body;
}

std::vector<Json> CompletionBuilder::Chunks(const TokenOutput& output, int64_t prompt) {
  const size_t index = IndexOf(output, prompt);
  Choice& choice = choices_[index];
  const bool chat = request_.endpoint == ApiEndpoint::kChat;
  std::vector<Json> chunks;
  const auto add = [&](Json content, Json logprobs, Json finish) {
    Json piece = Head(/*chunk=*/true);
    Json one = {{"index", index}};
    one.update(content);
    one["logprobs"] = std::move(logprobs);
    one["finish_reason"] = std::move(finish);
    piece["choices"] = Json::array({std::move(one)});
    // OpenAI has a null in every piece but the last.
    if (request_.include_usage) piece["usage"] = nullptr;
    chunks.push_back(std::move(piece));
  };
  std::string text = output.text;
  std::vector<ScoredToken> tokens;
  if (!choice.begun && chat) {
    add({{"delta", {{"role", "assistant"}, {"content", ""}}}}, nullptr, nullptr);
  } else if (!choice.begun) {
    text = PromptText(prompt) + text;
    tokens = PromptTokens(prompt);
  }
  choice.begun = true;
  if (output.logprobs && output.id >= 0) tokens.push_back({output.id, output.logprobs});
  const bool last = output.cause != StopCause::kNone;
  const auto content = [&](const std::string& said) -> Json {
    if (!chat) return {{"text", said}};
    return {{"delta", said.empty() ? Json::object() : Json{{"content", said}}}};
  };
  if (!text.empty() || !tokens.empty()) {
    Json logprobs = Logprobs(tokens, choice.text_offset);
    add(content(text), std::move(logprobs), nullptr);
  }
  if (last) {
    add(content(""), nullptr, FinishReason(output.cause));
    chunks.back()["choices"][0]["stop_cause"] = StopCauseName(output.cause);
  }
  return chunks;
}

Json CompletionBuilder::EmptyChunk() const {
  Json piece = Head(/*chunk=*/true);
  piece["choices"] = Json::array();
  return piece;
}

Json CompletionBuilder::UsageChunk() const {
  Json piece = EmptyChunk();
  piece["usage"] = Usage();
  piece["timings"] = Timings();
  if (!request_.ignored.empty()) piece["ignored"] = request_.ignored;
  return piece;
}

}  // namespace lucid
