// Sequence: what the scheduler knows of one stream of tokens. A request is one sequence, or several
// that share their prompt (parallel samples, beams).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kv/kv_cache.h"

namespace lucid {

using SequenceId = uint64_t;  // ascending by arrival

enum class SequenceStatus : int8_t {
  kWaiting,  // holds nothing in the cache: new, or preempted and to be recomputed
  kRunning,  // has its place in the cache
  kSwapped,  // its blocks lie in the swap space
};

struct SequenceSpec {
  std::vector<int32_t> tokens;  // the prompt (and, for a handed-over sequence, its reply so far)
  int64_t n_prompt = 0;         // of them, the prompt: computed in the prompt phase
  int64_t max_length = 0;       // most tokens it can come to: prompt and reply
  int64_t max_places = 0;       // most cache places; 0: max_length. Less where eviction bounds it.
  int32_t priority = 0;         // higher runs first
  std::string client;           // fairness between equals: who has been served least comes first
  bool share = true;            // takes part in prefix sharing
  uint64_t root = 0;            // see KvCache::Open
  // Goes beside another sequence of its request (an audit's shadow): takes no place among
  // SchedulerOptions::max_sequences, so that the two need not take turns in one.
  bool companion = false;
};

struct Sequence {
  SequenceId id = 0;
  SequenceSpec spec;  // spec.tokens stays what was submitted
  SequenceStatus status = SequenceStatus::kWaiting;
  SequenceHandle kv = -1;       // kRunning, kSwapped
  std::vector<int32_t> tokens;  // prompt and reply so far
  int64_t n_computed = 0;       // tokens whose keys and values are in the cache
  int64_t cached_tokens = 0;    // of the prompt, found in the tree when it was first admitted
  bool blocked = false;         // waits for another sequence's row (a beam for its siblings, an
                                // audited reply for its shadow): it is not computed meanwhile
  int64_t max_chunk = 0;        // most tokens of it in one step; 0: no limit of its own
  int64_t waiting_since = 0;    // step number at which it came: it gains rank from there on, also
                                // while it runs, so that a preemption costs it no rank
  int64_t furthest = 0;         // the most tokens that were ever computed of it
  int64_t last_step = -1;       // step number at which tokens of it were last computed
  int64_t preemptions = 0;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t to_compute() const { return length() - n_computed; }
  // Tokens that the cache may give it; at least one is left to compute. Of the reply only what is
  // known to have been computed in its phase: else a preemption could change bits.
  int64_t most_cached(bool strict_cache) const {
    return strict_cache ? length() - 1 : std::min(length() - 1, spec.n_prompt);
  }
  int64_t most_places() const { return spec.max_places > 0 ? spec.max_places : spec.max_length; }
  // Its next token is the newest one: one row, whose logits give the next token of the reply.
  bool decoding() const { return to_compute() == 1 && length() > spec.n_prompt; }
};

}  // namespace lucid
