// Scheduler: which sequences run in the next step, with how many tokens each.
//
//   StepPlan plan = scheduler.Decide();   // pure: looks, changes nothing
//   scheduler.Apply(plan);                // preempts, swaps, admits; takes cache blocks
//   ... run plan.chunks ...
//   scheduler.Commit(plan, seconds);      // publishes blocks, learns the cost of the step
//
// Every step is a mixed one: first a token of each decoding sequence, then prefill chunks with what
// is left of the budget (SARATHI, Agrawal et al. 2023; Orca, Yu et al. 2022). When blocks run out
// blocked sequences are preempted, then the last in the order.
//
// Order (order.h): priority, which grows with age up to the highest one present; between equals the
// client that was served least (virtual token counters, Sheng et al. 2023, arXiv 2401.00588); then
// arrival. What is very old goes before everything else, the oldest first.
//
// Why every request ends: a sequence is admitted only when all of its known tokens fit beside what
// the running ones still have to compute, so between two preemptions somebody gained a token that
// is never lost; and whoever is first in the order is preempted for nobody.
//
// Knows nothing of models or text. Not thread-safe: the engine's loop owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/kv_cache.h"
#include "sched/cost_model.h"
#include "sched/sequence.h"

namespace lucid {

enum class PreemptionMode : int8_t {
  kRecompute,  // blocks are given back (and stay cached while memory lasts); tokens are recomputed
  kSwap,       // blocks are copied to the swap space; recomputed where it is full
};

struct SchedulerOptions {
  int64_t max_step_tokens = 512;  // most tokens in a step (--batch-size)
  int64_t max_sequences = 16;     // most sequences that run at once, companions aside (--parallel)
  int64_t max_waiting = 1024;     // most that wait; one more is refused
  int64_t chunk = 0;              // most prefill tokens in a step; 0: max_step_tokens
  double itl_target_seconds = 0;  // > 0: while sequences decode, prefill chunks are as long as the
                                  // cost model says that the step stays within this
  int64_t min_chunk = 16;         // but not shorter than this (while tokens are left)
  PreemptionMode preemption = PreemptionMode::kRecompute;
  int64_t aging_steps = 256;  // steps after which a sequence counts as one priority higher
};

// Tokens [first, first + count) of a sequence.
struct Chunk {
  SequenceId id = 0;
  int64_t first = 0;
  int64_t count = 0;
};

struct StepPlan {
  std::vector<SequenceId> preempt;  // in this order, before anything else
  std::vector<SequenceId> swap_in;
  std::vector<SequenceId> admit;
  std::vector<Chunk> chunks;  // decode rows first; sharers of a prefix side by side
  int64_t decode_tokens = 0;
  int64_t prefill_tokens = 0;
  int64_t chunk_limit = 0;  // most prefill tokens that this step may have
  bool empty() const { return chunks.empty() && preempt.empty(); }
};

// Everything that Decide looks at, as plain data.
struct SchedulerState {
  SchedulerOptions options;
  int64_t step = 0;
  std::span<const Sequence* const> sequences;  // not finished ones, by id
  const KvCache* cache = nullptr;              // const: counts and what prompts would find
  const CostModel* cost = nullptr;
  const std::map<std::string, int64_t>* served = nullptr;  // tokens by client
};
StepPlan Decide(const SchedulerState& state);

struct SchedulerStats {
  int64_t waiting = 0, running = 0, swapped = 0;
  int64_t steps = 0, decode_tokens = 0, prefill_tokens = 0;
  int64_t recomputed_tokens = 0;  // computed before, lost by preemption
  int64_t preemptions_recompute = 0, preemptions_swap = 0;
};

class Scheduler {
 public:
  // `cache` must outlive the scheduler. Limits below 1 count as 1.
  Scheduler(const SchedulerOptions& options, KvCache& cache);
  ~Scheduler();

  // kCapacity with both numbers if it could never fit the cache, or if the queue is full;
  // kInvalidArgument if there is no token.
  Result<SequenceId> Add(SequenceSpec spec);
  // What Add would say of the cache's size; may be asked from any thread.
  Status CheckFits(const SequenceSpec& spec) const;
  // A twin that shares the parent's cache. If the parent is not running, the twin waits and
  // computes again what the cache does not give it. If too many run, the next plan preempts the
  // newest.
  SequenceId Fork(SequenceId parent);
  // A sequence whose cache was filled from a snapshot: runs at once. `kv` holds n_computed tokens.
  // Errors as Add's, and kCapacity where max_sequences run already; `kv` stays the caller's then.
  Result<SequenceId> Adopt(SequenceSpec spec, SequenceHandle kv, int64_t n_computed);
  void Append(SequenceId id, int32_t token);
  // A blocked sequence keeps its place, but others may take it if they need its blocks.
  void SetBlocked(SequenceId id, bool blocked);
  void SetMaxChunk(SequenceId id, int64_t tokens);
  // Ends a sequence in any state and gives its blocks back (its prefix stays cached).
  void Remove(SequenceId id);

  bool idle() const;  // no sequence at all
  const Sequence& Get(SequenceId id) const;
  StepPlan Decide() const;
  // Chunks whose blocks could not be had after all are taken out of the plan; so are others' that
  // were preempted.
  void Apply(StepPlan& plan);
  // n_computed grows by the chunks; `seconds` is what running them took (0: unknown). Once per
  // Apply, also if no chunk is left; chunks of sequences that were removed since are passed over.
  void Commit(const StepPlan& plan, double seconds);

  const SchedulerStats& stats() const;
  const CostModel& cost() const;
  // Sequences against cache: handles, lengths, states; the cache's own invariants too.
  Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid
