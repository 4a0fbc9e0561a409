// Answers in the shape of the OpenAI API: CompletionBuilder for replies, ErrorBody for errors.
// Neighbour: openai_request.h.
//
// Beyond OpenAI's members a body has "timings" and "seed", a choice "stop_cause", "kv" (what the
// cache held and dropped) and, from a beam search, "score".
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/openai_logprobs.h"
#include "engine/openai_request.h"
#include "engine/receipt.h"
#include "engine/request.h"

namespace lucid {

// 400, 404, 500 or 503.
int HttpStatus(ErrorCode code);
// {"error": {"message", "type", "param", "code"}}
nlohmann::ordered_json ErrorBody(const ApiError& error);
// A fresh name such as "chatcmpl-3f2a...", unlike any other.
std::string NewApiId(std::string_view prefix);
// "kv" of a choice: bytes, evicted_tokens, evictions, attention_dropped (a share), and audit.
nlohmann::ordered_json CacheFigures(const RequestStats& stats);

// The answer to one body: its requests to the engine, and what their outputs make, whole or piece
// by piece.
class CompletionBuilder {
 public:
  // `tokenizer` may be null (then no log-probabilities can be spelled); it must outlive the
  // builder.
  CompletionBuilder(const ApiRequest& request, const Tokenizer* tokenizer, std::string model);
  ~CompletionBuilder();
  CompletionBuilder(CompletionBuilder&&) noexcept;
  CompletionBuilder& operator=(CompletionBuilder&&) noexcept;

  int64_t n_prompts() const { return request_.n_prompts(); }
  // The request for prompt `i`; the builder keeps what it reports of the prompt's tokens.
  Request RequestOf(int64_t i) const;
  // An output of it. Once an error has come, that is the answer.
  void Add(const TokenOutput& output, int64_t prompt = 0);
  const std::optional<Error>& error() const { return error_; }

  // Of all prompts and replies.
  int64_t prompt_tokens() const;
  int64_t cached_tokens() const;     // of the prompts'
  int64_t generated_tokens() const;  // a best_of's dropped replies included
  const std::string& id() const { return id_; }
  // What a receipt says of the replies to prompt `i`, all of a best_of's.
  std::vector<ReceiptReply> Replies(int64_t i) const;
  // Of the first reply to prompt `i`.
  const RequestStats& Stats(int64_t i) const;

  // The chat.completion or text_completion object, once all replies have ended.
  nlohmann::ordered_json Body() const;

  // The pieces of a stream that `output`, just added, makes: objects with "choices" of one.
  std::vector<nlohmann::ordered_json> Chunks(const TokenOutput& output, int64_t prompt = 0);
  // The last piece where the usage was asked for: no choices.
  nlohmann::ordered_json UsageChunk() const;
  // One with neither choices nor usage, for what a server adds.
  nlohmann::ordered_json EmptyChunk() const;

 private:
  struct Choice;
  struct PromptScores;
  size_t IndexOf(const TokenOutput& output, int64_t prompt) const;
  std::string PromptText(int64_t prompt) const;
  std::vector<ScoredToken> PromptTokens(int64_t prompt) const;
  std::vector<size_t> ChoicesToShow() const;
  nlohmann::ordered_json Logprobs(const std::vector<ScoredToken>& tokens, int64_t& offset) const;
  nlohmann::ordered_json ChoiceJson(size_t index, size_t shown_as) const;
  nlohmann::ordered_json Usage() const;
  nlohmann::ordered_json Timings() const;
  nlohmann::ordered_json Head(bool chunk) const;

  ApiRequest request_;
  std::string model_;
  const Tokenizer* tokenizer_;
  std::string id_;
  int64_t created_ = 0;          // seconds since 1970
  std::vector<Choice> choices_;  // the replies of the first prompt, then those of the next
  std::vector<std::shared_ptr<PromptScores>> scores_;  // by prompt; where they are echoed
  std::optional<Error> error_;
};

}  // namespace lucid
