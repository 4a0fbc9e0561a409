// What the loop keeps of a request that it serves, and of each of its replies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/timer.h"
#include "decode/beam_search.h"
#include "decode/sampler.h"
#include "decode/stop.h"
#include "engine/kv_audit.h"
#include "engine/request.h"
#include "engine/stream_channel.h"
#include "kv/eviction.h"
#include "sched/sequence.h"
#include "text/detokenizer.h"

namespace lucid {

// One sequence's way to a text.
struct Reply {
  int32_t index = 0;
  SequenceId sequence = 0;
  StopMatcher stop;
  std::optional<Detokenizer> detokenizer;  // none where the model has no tokenizer
  std::unique_ptr<Evictor> evictor;        // none for the full cache
  int64_t generated = 0;                   // tokens of the reply
  Clock::time_point first_token;
  bool done = false;
  std::unique_ptr<TokenOutput> last_output;  // ready, but the audit of its token is not
  // Beams only.
  double logprob_sum = 0;
  std::vector<LogprobResult> logprobs;  // of its tokens, where the request asks for them
  std::vector<TokenProb> candidates;    // most likely next tokens; empty while being computed
};

struct ActiveRequest {
  explicit ActiveRequest(SamplerChain chain) : sampler(std::move(chain)) {}

  RequestId id = 0;
  Request request;
  std::shared_ptr<StreamChannel> stream;
  SamplerChain sampler;
  int64_t max_length = 0;  // of a sequence: prompt and reply
  Clock::time_point submitted;
  Clock::time_point asked;  // the same, or when the engine before this one was asked
  std::optional<Clock::time_point> first_step;
  RequestStats stats;       // of the prompt; a handed-over request brings earlier ones
  int64_t next_logits = 0;  // first position whose logits were not reported yet
  std::vector<std::unique_ptr<Reply>> replies;
  std::optional<BeamSearch> beam;
  int64_t beam_preemptions = 0;        // of beams that did not live on
  std::unique_ptr<KvAuditor> auditor;  // with a shadow sequence on the full cache
  SequenceId shadow = 0;
  int64_t next_audit = 0;  // position whose row of the full cache is wanted next
  bool ended = false;
  std::optional<Error> fault;  // found in this step, which will end it

  bool wants_prompt_logits() const { return request.on_logits && request.logits_from >= 0; }
  const std::vector<TokenId>& prompt() const { return request.prompt; }
};

}  // namespace lucid
