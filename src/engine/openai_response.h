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

#include "engine/openai_request.h"
#include "engine/request.h"

namespace lucid {

// 400, 404, 500 or 503.
// A log-probability; null where it is minus infinity, which JSON cannot spell.
nlohmann::ordered_json JsonNumber(double x);
int HttpStatus(ErrorCode code);
// {"error": {"message", "type", "param", "code"}}
nlohmann::ordered_json ErrorBody(const ApiError& error);
// A fresh name such as "chatcmpl-3f2a...", unlike any other.
std::string NewApiId(std::string_view prefix);
// "kv" of a choice: bytes, evicted_tokens, evictions, attention_dropped (a share), and audit.
nlohmann::ordered_json CacheFigures(const RequestStats& stats);

// Gathers the outputs of one request.
class CompletionBuilder {
 public:
  // `tokenizer` may be null (then no log-probabilities can be spelled); it must outlive the
  // builder.
  CompletionBuilder(const ApiRequest& request, const Tokenizer* tokenizer, std::string model);
  ~CompletionBuilder();
  CompletionBuilder(CompletionBuilder&&) noexcept;
  CompletionBuilder& operator=(CompletionBuilder&&) noexcept;

  void Add(const TokenOutput& output);
  // What went wrong in one of the replies.
  const std::optional<Error>& error() const { return error_; }
  int64_t prompt_tokens() const;
  int64_t cached_tokens() const;     // of the prompt's
  int64_t generated_tokens() const;  // of all replies
  // The chat.completion or text_completion object, once all replies have ended.
  nlohmann::ordered_json Body() const;

 private:
  struct Choice;
  nlohmann::ordered_json ChoiceJson(size_t index) const;

  ApiEndpoint endpoint_;
  std::string model_;
  uint64_t seed_ = 0;
  bool beams_ = false;
  const Tokenizer* tokenizer_;
  int64_t created_ = 0;  // seconds since 1970
  std::vector<Choice> choices_;
  std::optional<Error> error_;
};

}  // namespace lucid
