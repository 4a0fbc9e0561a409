// Decide: the choice of a step, on paper only. Decode rows, then chunks of running prompts, then
// who comes in. Blocks are counted down from what the cache has; Scheduler::Apply takes them.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/prefix_tree.h"
#include "sched/block_needs.h"
#include "sched/order.h"
#include "sched/scheduler.h"
#include "sched/step_load.h"

namespace lucid {
namespace {

// Of the target, what a predicted step may take: predictions are a few per cent off.
constexpr double kTargetMargin = 0.9;
// Waiting sequences that are looked at and passed over in one step.
constexpr int kMostPassedOver = 32;
// Of a pool, what stays free when a sequence comes in beside others: room to grow, so that it does
// not push one of them out at once.
constexpr int64_t kHeadroomShare = 64;

struct RunningSequence {
  const Sequence* sequence = nullptr;
  Rank rank;
  bool preempted = false;
  int64_t count = 0;   // tokens in this step
  PoolCounts taken{};  // blocks for them

  bool active() const { return !preempted && !sequence->blocked; }
};

struct Candidate {
  const Sequence* sequence = nullptr;
  Rank rank;
};

// For heaps, whose top is the greatest: who is served later. Swapped ones come back before new ones
// of the same level come in.
bool Later(const Candidate& a, const Candidate& b) {
  const bool a_swapped = a.sequence->status == SequenceStatus::kSwapped;
  const bool b_swapped = b.sequence->status == SequenceStatus::kSwapped;
  if (a.rank.level == b.rank.level && a_swapped != b_swapped) return b_swapped;
  return Before(b.rank, a.rank);
}

class Decision {
 public:
  explicit Decision(const SchedulerState& state);

  StepPlan Make() {
    PreemptExcess();
    DecodeRows();
    PrefillRunning();
    Admit();
    return Assemble();
  }

 private:
  void PreemptExcess();
  void DecodeRows();
  void PrefillRunning();
  bool PrefillOne(size_t asker);
  void Admit();
  bool AdmitOne(const Sequence& sequence, const PrefixPeek& peek);
  StepPlan Assemble();

  // Blocks for the asker to compute up to n_tokens; preempts whom it may. False if that is not
  // enough.
  bool TakeBlocks(size_t asker, int64_t n_tokens);
  std::optional<size_t> NextVictim(size_t asker);
  void Preempt(size_t victim);
  bool MakeRoomAmongIdle();

  int64_t PrefillBudget(const Sequence& sequence, int64_t first, int64_t wanted);
  void CountPrefill(const Sequence& sequence, int64_t first, int64_t count) {
    prefill_tokens_ += count;
    AddPrefill(sequence, first, count, load_);
  }
  int64_t ChunkOf(const Sequence& sequence) const {
    return sequence.max_chunk > 0 ? std::min(sequence.max_chunk, chunk_) : chunk_;
  }
  int64_t step_tokens_left() const {
    return state_.options.max_step_tokens - decode_tokens_ - prefill_tokens_;
  }
  int64_t prefill_tokens_left() const {
    return std::min(chunk_ - prefill_tokens_, step_tokens_left());
  }

  PrefixPeek Peek(const Sequence& sequence) const;
  bool AwaitsPrefix(const Sequence& sequence, const PrefixPeek& peek) const;
  PoolCounts Promised() const;
  PoolCounts Headroom() const;

  const SchedulerState& state_;
  const KvCache& cache_;
  StepPlan plan_;
  std::vector<RunningSequence> running_;  // in order
  std::vector<Candidate> candidates_;
  PoolCounts available_{};
  PoolCounts held_back_{};      // what newcomers must leave
  int64_t chunk_ = 0;           // most prefill tokens of a step
  bool itl_bound_ = false;      // prefill is bounded by the time that the step takes
  bool budget_closed_ = false;  // the time is used up
  int64_t decode_tokens_ = 0;
  int64_t prefill_tokens_ = 0;
  StepLoad load_;
  int64_t n_running_ = 0;   // not preempted
  int64_t n_places_ = 0;    // of them, those that take a place among max_sequences
  size_t blocked_end_ = 0;  // blocked victims at and behind this are taken
  size_t tail_end_ = 0;     // everything at and behind this is preempted
  std::vector<Chunk> admitted_decode_;
  std::vector<Chunk> admitted_prefill_;
  std::vector<std::pair<const Sequence*, int64_t>> admitted_;  // and the tokens they will have
};

Decision::Decision(const SchedulerState& state) : state_(state), cache_(*state.cache) {
  const SchedulerOptions& options = state.options;
  const Ranking ranking(state.sequences, state.step, options.aging_steps, state.served);
  bool decoding = false;
  for (const Sequence* sequence : state.sequences) {
    if (sequence->status != SequenceStatus::kRunning) continue;
    running_.push_back({.sequence = sequence, .rank = ranking.Of(*sequence)});
    decoding = decoding || sequence->decoding();
  }
  std::sort(
      running_.begin(), running_.end(),
      [](const RunningSequence& a, const RunningSequence& b) { return Before(a.rank, b.rank); });
  n_running_ = static_cast<int64_t>(running_.size());
  n_places_ = std::count_if(running_.begin(), running_.end(), [](const RunningSequence& runner) {
    return !runner.sequence->spec.companion;
  });
  blocked_end_ = tail_end_ = running_.size();
  // With every place taken and somebody to serve only companions come in: no need to rank the rest.
  const auto runs = [](const RunningSequence& runner) {
    return runner.active() && runner.sequence->to_compute() > 0;
  };
  const bool open =
      n_places_ < options.max_sequences || std::none_of(running_.begin(), running_.end(), runs);
  for (const Sequence* sequence : state.sequences) {
    if (sequence->status == SequenceStatus::kRunning || sequence->blocked) continue;
    if (open || sequence->spec.companion) {
      candidates_.push_back({sequence, ranking.Of(*sequence)});
    }
  }
  std::make_heap(candidates_.begin(), candidates_.end(), Later);
  available_ = cache_.available();
  chunk_ = options.chunk > 0 ? std::min(options.chunk, options.max_step_tokens)
                             : options.max_step_tokens;
  itl_bound_ = options.itl_target_seconds > 0 && decoding && state.cost != nullptr;
}

// --- Blocks ---

// Blocked ones first, from the end of the order; then whoever is last, if that is behind the asker.
std::optional<size_t> Decision::NextVictim(size_t asker) {
  while (blocked_end_ > 0) {
    --blocked_end_;
    const RunningSequence& runner = running_[blocked_end_];
    if (runner.sequence->blocked && !runner.preempted) return blocked_end_;
  }
  while (tail_end_ > asker + 1) {
    --tail_end_;
    if (!running_[tail_end_].preempted) return tail_end_;
  }
  return std::nullopt;
}

void Decision::Preempt(size_t victim) {
  RunningSequence& runner = running_[victim];
  const Sequence& sequence = *runner.sequence;
  available_ += cache_.Releases(sequence.kv);
  available_ += runner.taken;
  if (runner.count > 0) {
    StepLoad chunk;
    if (sequence.decoding()) {
      AddDecode(sequence, sequence.n_computed, chunk);
    } else {
      AddPrefill(sequence, sequence.n_computed, runner.count, chunk);
    }
    load_.decode_tokens -= chunk.decode_tokens;
    load_.decode_keys -= chunk.decode_keys;
    load_.prefill_tokens -= chunk.prefill_tokens;
    load_.prefill_pairs -= chunk.prefill_pairs;
    decode_tokens_ -= chunk.decode_tokens;
    prefill_tokens_ -= chunk.prefill_tokens;
  }
  runner.preempted = true;
  runner.count = 0;
  runner.taken = {};
  --n_running_;
  if (!sequence.spec.companion) --n_places_;
  plan_.preempt.push_back(sequence.id);
}

bool Decision::TakeBlocks(size_t asker, int64_t n_tokens) {
  RunningSequence& runner = running_[asker];
  const PoolCounts need = cache_.Need(runner.sequence->kv, n_tokens);
  while (!Fits(need, available_)) {
    const std::optional<size_t> victim = NextVictim(asker);
    if (!victim) return false;
    Preempt(*victim);
  }
  available_ -= need;
  runner.taken = need;
  return true;
}

// --- Running sequences ---

// Forks run at once, over the limit if need be: a beam's twin often takes the place of a sibling
// that is given up a moment later. If too many are left the newest give way.
void Decision::PreemptExcess() {
  while (n_places_ > state_.options.max_sequences) {
    size_t newest = running_.size();
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].preempted || running_[i].sequence->spec.companion) continue;
      if (newest == running_.size() || running_[i].rank.id > running_[newest].rank.id) newest = i;
    }
    Preempt(newest);
  }
}

void Decision::DecodeRows() {
  std::vector<size_t> rows;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i].active() && running_[i].sequence->decoding()) rows.push_back(i);
  }
  const auto most = static_cast<size_t>(state_.options.max_step_tokens);
  if (rows.size() > most) {  // in turn: those that have waited longest
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(rows.begin(), middle, rows.end(), [this](size_t a, size_t b) {
      const int64_t last_a = running_[a].sequence->last_step;
      const int64_t last_b = running_[b].sequence->last_step;
      return last_a != last_b ? last_a < last_b : a < b;
    });
    rows.resize(most);
    std::sort(rows.begin(), rows.end());
  }
  for (const size_t row : rows) {
    RunningSequence& runner = running_[row];
    if (runner.preempted) continue;
    if (TakeBlocks(row, runner.sequence->n_computed + 1) || !plan_.preempt.empty()) {
      // Victims that shared blocks may have given back more than could be foreseen: Apply sees.
      runner.count = 1;
      ++decode_tokens_;
      AddDecode(*runner.sequence, runner.sequence->n_computed, load_);
    } else {
      Preempt(row);
    }
  }
}

void Decision::PrefillRunning() {
  for (size_t i = 0; i < running_.size(); ++i) {
    const RunningSequence& runner = running_[i];
    if (!runner.active() || runner.sequence->decoding() || runner.sequence->to_compute() == 0) {
      continue;
    }
    if (!PrefillOne(i)) return;
  }
}

// False if there is nothing left to give to those behind.
bool Decision::PrefillOne(size_t asker) {
  RunningSequence& runner = running_[asker];
  const Sequence& sequence = *runner.sequence;
  const int64_t first = sequence.n_computed;
  const int64_t wanted = PrefillBudget(sequence, first, sequence.to_compute());
  if (wanted == 0) return false;
  while (true) {
    // A shorter chunk before a preemption.
    const int64_t count = LargestCount(
        wanted, [&](int64_t n) { return Fits(cache_.Need(sequence.kv, first + n), available_); });
    if (count > 0 && TakeBlocks(asker, first + count)) {
      runner.count = count;
      CountPrefill(sequence, first, count);
      return true;
    }
    const std::optional<size_t> victim = NextVictim(asker);
    if (!victim) break;
    Preempt(*victim);
  }
  if (decode_tokens_ + prefill_tokens_ > 0) return true;  // it stays and waits for those ahead
  if (plan_.preempt.empty()) {
    Preempt(asker);
  } else {  // as for decode rows
    runner.count = wanted;
    CountPrefill(sequence, first, wanted);
  }
  return true;
}

// How many of `wanted` tokens of the sequence the step has time for.
int64_t Decision::PrefillBudget(const Sequence& sequence, int64_t first, int64_t wanted) {
  const SchedulerOptions& options = state_.options;
  wanted = std::min({wanted, ChunkOf(sequence), prefill_tokens_left()});
  if (budget_closed_ || wanted <= 0) return 0;
  if (!itl_bound_) return wanted;
  // What is certain even if the target cannot be held.
  const int64_t least = std::min(wanted, std::max<int64_t>(0, options.min_chunk - prefill_tokens_));
  // The model is not trusted far beyond what it has seen.
  const int64_t known = std::max(options.min_chunk, 2 * state_.cost->most_prefill_tokens());
  const int64_t most = std::min(wanted, known - prefill_tokens_);
  const double target = kTargetMargin * options.itl_target_seconds;
  int64_t count = 0;
  if (state_.cost->observations() > 0) {
    count = LargestCount(most, [&](int64_t n) {
      StepLoad load = load_;
      AddPrefill(sequence, first, n, load);
      return state_.cost->Predict(load) <= target;
    });
  }
  count = std::max(count, least);
  budget_closed_ = count < wanted;
  return count;
}

// --- Who comes in ---

PrefixPeek Decision::Peek(const Sequence& sequence) const {
  if (!sequence.spec.share || !cache_.options().prefix_sharing) return {};
  return cache_.Peek(sequence.tokens, sequence.most_cached(cache_.options().strict),
                     sequence.spec.root, sequence.spec.n_prompt);
}

// True if a sequence that is computing its prompt now will leave a whole block in the tree that
// this one can take, but would otherwise compute a second time.
bool Decision::AwaitsPrefix(const Sequence& sequence, const PrefixPeek& peek) const {
  if (!sequence.spec.share || !cache_.options().prefix_sharing) return false;
  const int64_t block_size = cache_.layout().block_size();
  const auto will_leave = [&](const Sequence& other, int64_t n_computed) {
    if (!other.spec.share || other.spec.root != sequence.spec.root) return false;
    const int64_t most =
        std::min({sequence.length() - 1, sequence.spec.n_prompt, other.spec.n_prompt});
    if (n_computed >= most) return false;
    const int64_t blocks =
        CommonPrefix(std::span(sequence.tokens).first(static_cast<size_t>(most)), other.tokens) /
        block_size;
    return blocks > peek.n_tokens / block_size && blocks * block_size > n_computed;
  };
  for (const RunningSequence& runner : running_) {
    const Sequence& other = *runner.sequence;
    if (runner.active() && !other.decoding() && will_leave(other, other.n_computed)) return true;
  }
  return std::any_of(admitted_.begin(), admitted_.end(),
                     [&](const auto& other) { return will_leave(*other.first, other.second); });
}

// Blocks that running prompts will still take after this step.
PoolCounts Decision::Promised() const {
  PoolCounts blocks{};
  for (const RunningSequence& runner : running_) {
    if (runner.preempted) continue;
    blocks +=
        RemainingBlocks(cache_.layout(), *runner.sequence,
                        runner.sequence->n_computed + runner.count, ChunkOf(*runner.sequence));
  }
  return blocks;
}

PoolCounts Decision::Headroom() const {
  PoolCounts blocks = cache_.options().n_blocks;
  for (int64_t& count : blocks) count /= kHeadroomShare;
  return blocks;
}

// Takes the place of a running sequence for which there is nothing to do: a beam that waits for a
// sibling must not keep this sibling out.
bool Decision::MakeRoomAmongIdle() {
  for (size_t i = running_.size(); i-- > 0;) {
    const RunningSequence& runner = running_[i];
    if (runner.preempted || (runner.active() && runner.sequence->to_compute() > 0)) continue;
    Preempt(i);
    return true;
  }
  return false;
}

void Decision::Admit() {
  if (candidates_.empty() || !plan_.preempt.empty()) return;
  held_back_ = Promised();
  held_back_ += Headroom();
  int passed_over = 0;
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), Later);
    const Sequence& sequence = *candidates_.back().sequence;
    candidates_.pop_back();
    const bool swapped = sequence.status == SequenceStatus::kSwapped;
    if (!swapped && (budget_closed_ || prefill_tokens_left() == 0)) return;
    const PrefixPeek peek = swapped ? PrefixPeek{} : Peek(sequence);
    if (!swapped && AwaitsPrefix(sequence, peek)) {
      if (++passed_over == kMostPassedOver) return;
      continue;
    }
    while (!AdmitOne(sequence, peek)) {
      // Nobody overtakes one that does not fit; only where nothing runs idle ones make room for it.
      if (decode_tokens_ + prefill_tokens_ > 0 || !MakeRoomAmongIdle()) return;
    }
  }
}

bool Decision::AdmitOne(const Sequence& sequence, const PrefixPeek& peek) {
  const bool companion = sequence.spec.companion;
  if (!companion && n_places_ >= state_.options.max_sequences) return false;
  const bool swapped = sequence.status == SequenceStatus::kSwapped;
  const bool alone = n_running_ == 0;  // then it fits: Scheduler::Add saw to that
  const PoolCounts back = swapped ? cache_.SwapNeed(sequence.kv) : PoolCounts{};
  const int64_t chunk = ChunkOf(sequence);
  PoolCounts need = back;
  need += swapped ? RemainingBlocks(cache_.layout(), sequence, sequence.n_computed, chunk)
                  : AdmissionBlocks(cache_.layout(), sequence, peek, chunk);
  PoolCounts room = available_;
  room -= held_back_;
  if (!alone && !Fits(need, room)) return false;

  const int64_t first = swapped ? sequence.n_computed : peek.n_tokens;
  if (swapped && sequence.decoding()) {
    if (step_tokens_left() > 0) {  // else its row is in the next step
      admitted_decode_.push_back({sequence.id, first, 1});
      ++decode_tokens_;
      AddDecode(sequence, first, load_);
    }
  } else {
    const int64_t count = PrefillBudget(sequence, first, sequence.length() - first);
    if (count > 0) {
      admitted_prefill_.push_back({sequence.id, first, count});
      CountPrefill(sequence, first, count);
    } else if (!swapped) {
      return false;
    }
  }
  available_ -= need;
  ++n_running_;
  if (!companion) ++n_places_;
  (swapped ? plan_.swap_in : plan_.admit).push_back(sequence.id);
  admitted_.emplace_back(&sequence, first);
  return true;
}

// --- The plan ---

StepPlan Decision::Assemble() {
  // Sharers of a prefix have the same first block.
  size_t full_group = 0;
  const std::span<const KvGroup> groups = cache_.layout().groups();
  while (full_group + 1 < groups.size() && groups[full_group].kind != KvGroupKind::kFull) {
    ++full_group;
  }
  std::vector<std::pair<int32_t, Chunk>> rows;
  std::vector<Chunk> prefill;
  for (const RunningSequence& runner : running_) {
    if (runner.count == 0) continue;
    const Sequence& sequence = *runner.sequence;
    const Chunk chunk{sequence.id, sequence.n_computed, runner.count};
    if (sequence.decoding()) {
      const std::span<const int32_t> table = cache_.Table(sequence.kv, full_group);
      rows.emplace_back(table.empty() ? -1 : table[0], chunk);
    } else {
      prefill.push_back(chunk);
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  plan_.chunks.reserve(rows.size() + prefill.size() + admitted_.size());
  for (const auto& row : rows) plan_.chunks.push_back(row.second);
  for (const std::vector<Chunk>* part : {&admitted_decode_, &prefill, &admitted_prefill_}) {
    plan_.chunks.insert(plan_.chunks.end(), part->begin(), part->end());
  }
  plan_.decode_tokens = decode_tokens_;
  plan_.prefill_tokens = prefill_tokens_;
  plan_.chunk_limit = budget_closed_
                          ? prefill_tokens_
                          : std::min(chunk_, state_.options.max_step_tokens - decode_tokens_);
  return std::move(plan_);
}

}  // namespace

StepPlan Decide(const SchedulerState& state) {
  return Decision(state).Make();
}

}  // namespace lucid
