// Request and what comes back: tokens as they are made, and what they cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"
#include "decode/stop.h"
#include "kv/eviction.h"
#include "text/tokenizer.h"

namespace lucid {

using RequestId = uint64_t;

struct BeamOptions {
  int32_t width = 0;            // hypotheses kept at every step; 0: no beam search
  double length_penalty = 1.0;  // score = sum of log-probabilities / length^penalty
};

struct Request {
  std::vector<TokenId> prompt = {};
  SamplerParams sampling = {};
  int64_t max_tokens = -1;             // -1: until the model ends or the context is full
  std::vector<std::string> stop = {};  // the reply ends before any of these
  bool ignore_eos = false;             // go on after an end-of-generation token
  int n_logprobs = -1;  // >= 0: report the log-probability of each token and this many alternatives
  bool explain = false;     // report what every sampler stage did
  uint64_t rng_stream = 0;  // tells apart several replies to one prompt under one seed
  // Replies to draw; they share the prompt's cache. Reply i draws from stream rng_stream + i. With
  // beams: how many of the best hypotheses come back.
  int32_t n = 1;
  BeamOptions beam = {};

  // Scheduling.
  int32_t priority = 0;         // higher runs first
  std::string client = {};      // requests of one client share its fair part
  double deadline_seconds = 0;  // > 0: ended this long after Submit, wherever it is

  // The cache.
  EvictionOptions eviction = {};
  bool kv_audit =
      false;  // compare with the full cache as the reply goes along: RequestStats::audit

  // Takes these as the reply instead of sampling (perplexity, audits, replays).
  std::vector<TokenId> forced_reply = {};
  // Called in the engine's loop with the logits [vocab] of each position from logits_from on, in
  // order: of the prompt (all positions are then computed, none found in the cache) and of the
  // reply. The row of position p predicts the token at p + 1. -1: the reply's only.
  std::function<void(int64_t position, std::span<const float> logits)> on_logits = {};
  int64_t logits_from = -1;
};

// KL divergence of the bounded cache's distributions from the full cache's, over the reply.
struct KvAudit {
  int64_t positions = 0;
  double mean_kl = 0;  // nats, KL(full || bounded)
  double max_kl = 0;
  int64_t same_top1 = 0;  // positions where both have the same most likely token
};

// What a request did, once it has ended. With several replies each has its own; the prompt's
// figures are the same in all.
struct RequestStats {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, found in the cache
  int64_t generated_tokens = 0;
  double queue_seconds = 0;    // from Submit to the first step
  double prefill_seconds = 0;  // from there to the first token
  double decode_seconds = 0;   // from the first token to the last
  int64_t preemptions = 0;
  int64_t kv_bytes = 0;  // of the cache's blocks at the end, shared ones included
  EvictionBill eviction = {};
  std::optional<KvAudit> audit = {};

  double prefill_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

struct TokenOutput {
  RequestId request = 0;
  int32_t index = 0;  // which of the n replies
  TokenId id = -1;
  std::string text = {};  // whole characters that became visible with this token
  std::optional<LogprobResult> logprobs = {};
  std::optional<SampleReport> explain = {};
  std::chrono::steady_clock::time_point made = {};  // when the engine had it
  StopCause cause = StopCause::kNone;               // set on the last output of a reply
  std::optional<Error> error = {};                  // cause kError: what went wrong
  double score = 0;         // beams: of the whole hypothesis, on its last output
  RequestStats stats = {};  // filled on the last output of a reply
};

}  // namespace lucid
