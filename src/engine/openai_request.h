// Bodies of the OpenAI API's /v1/chat/completions and /v1/completions as requests to the engine.
// ParseApiRequest is the entry point; answers are made in openai_response.h. The batch command
// reads rows with it.
//
// Members that are null count as absent; those that are not supported are errors, never passed over
// (ApiContext::serving says what becomes of unknown ones). Beyond OpenAI's members, under the names
// of vLLM and of our flags: top_k, min_p, typical_p, repetition_penalty, ignore_eos, priority
// (higher runs first), deadline (seconds after which the reply ends), use_beam_search (n is the
// width) with length_penalty, kv_policy, kv_budget, kv_audit, chat_template_kwargs,
// add_generation_prompt, continue_final_message.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "engine/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lucid {

enum class ApiEndpoint { kChat, kCompletion };

struct ApiError {
  Error error;
  std::string param = {};  // the member at fault, where there is one
  std::string code = {};  // "unknown_parameter", "unsupported_parameter", ...; empty: see ErrorBody
};
template <typename T>
using ApiResult = tl::expected<T, ApiError>;

struct ApiContext {
  Result<const Tokenizer*> tokenizer;  // its error answers whoever needs it
  Result<const ChatTemplate*> chat_template;
  Request defaults = {};  // what bodies do not say; has no prompt
  // A server's: answers may come in pieces ("stream"), and members that nobody knows are told in
  // the answer instead of refused, as clients of other servers send them. A file's lines are as
  // strict as they can be.
  bool serving = false;
};

struct ApiRequest {
  ApiEndpoint endpoint = ApiEndpoint::kChat;
  Request request;  // for the first prompt
  // Of a completion with several: each is a request of its own, like the first.
  std::vector<std::vector<TokenId>> further_prompts = {};
  std::string model = {};        // as the body says, only to be echoed; empty where it says none
  bool seed_given = false;       // by the body
  bool stream = false;           // in pieces, as server-sent events
  bool include_usage = false;    // with a last piece that holds the usage
  bool echo = false;             // the text begins with the prompt's, and its log-probabilities
  int32_t best_of = 0;           // > 0: of so many replies the request.n likeliest
  bool explain = false;          // with what it took and a receipt
  std::string prompt_text = {};  // of the first prompt, where it came or was rendered as text
  std::vector<std::string> ignored = {};  // members of the body that nobody knows
  bool hide_logprobs = false;             // they are only there to compare these

  int64_t n_prompts() const { return 1 + std::ssize(further_prompts); }
  // The request for prompt `i`, as Submit takes it. The replies of a later prompt draw from streams
  // of their own.
  Request RequestOf(int64_t i) const;
};

// `body` must be an object.
ApiResult<ApiRequest> ParseApiRequest(ApiEndpoint endpoint, const nlohmann::ordered_json& body,
                                      const ApiContext& context);

}  // namespace lucid
