// Log-probabilities in the two shapes of the OpenAI API: that of chat completions and that of
// completions. Neighbour: openai_response.h.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>

#include "decode/sampler.h"
#include "text/tokenizer.h"

namespace lucid {

struct ScoredToken {
  TokenId id = -1;
  std::optional<LogprobResult> logprobs = {};  // none: nothing predicts a prompt's first token
};

// A log-probability; null where it is minus infinity, which JSON cannot spell.
nlohmann::ordered_json JsonNumber(double x);

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}. `tokenizer` may be null: then
// tokens have no text.
nlohmann::ordered_json ChatLogprobs(const Tokenizer* tokenizer,
                                    std::span<const ScoredToken> tokens);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets count characters from
// `offset` on, which is moved behind the last token.
nlohmann::ordered_json TextLogprobs(const Tokenizer* tokenizer, std::span<const ScoredToken> tokens,
                                    int64_t& offset);

}  // namespace lucid
