// Scheduler: keeps the sequences, carries plans out and records what came of them. The choice
// itself is decide.cc.
#include "sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sched/block_needs.h"
#include "sched/step_load.h"

namespace lucid {
namespace {

// "157 cache blocks (12.4 MB)"
std::string BlockText(const KvLayout& layout, size_t pool, int64_t blocks) {
  const int64_t bytes = blocks * layout.pools()[pool].block_bytes;
  return fmt::format("{} cache blocks ({:.1f} MB)", blocks, static_cast<double>(bytes) * 1e-6);
}

}  // namespace

struct Scheduler::Impl {
  Impl(const SchedulerOptions& opts, KvCache& kv_cache) : options(opts), cache(kv_cache) {
    for (int64_t* limit : {&options.max_step_tokens, &options.max_sequences, &options.max_waiting,
                           &options.min_chunk, &options.aging_steps}) {
      *limit = std::max<int64_t>(1, *limit);
    }
  }

  Sequence* Find(SequenceId id) const;
  Sequence& At(SequenceId id) const {
    Sequence* sequence = Find(id);
    LUCID_CHECK(sequence != nullptr, "no sequence {}", id);
    return *sequence;
  }
  Status CheckSpec(const SequenceSpec& spec) const;
  Sequence& Insert(std::unique_ptr<Sequence> sequence);
  int64_t& CountOf(SequenceStatus status);
  void SetStatus(Sequence& sequence, SequenceStatus status);
  void ClientCame(const std::string& client);
  void ClientLeft(const std::string& client);
  int64_t LeastServed() const;

  void Preempt(Sequence& sequence);
  void Admit(Sequence& sequence);
  bool TakeBlocks(Chunk& chunk);

  SchedulerOptions options;
  KvCache& cache;
  CostModel cost;
  SchedulerStats stats;
  std::vector<std::unique_ptr<Sequence>> sequences;  // by id
  std::vector<const Sequence*> view;                 // the same
  std::map<std::string, int64_t> served;             // tokens computed, by client
  std::map<std::string, int64_t> present;            // sequences by client
  SequenceId next_id = 1;
  int64_t step = 0;
};

// --- Sequences and clients ---

Sequence* Scheduler::Impl::Find(SequenceId id) const {
  const auto found = std::lower_bound(
      sequences.begin(), sequences.end(), id,
      [](const auto& sequence, SequenceId wanted) { return sequence->id < wanted; });
  return found != sequences.end() && (*found)->id == id ? found->get() : nullptr;
}

Status Scheduler::Impl::CheckSpec(const SequenceSpec& spec) const {
  if (spec.tokens.empty()) {
    return Err(ErrorCode::kInvalidArgument, "a sequence needs at least one token");
  }
  const auto length = static_cast<int64_t>(spec.tokens.size());
  LUCID_CHECK(spec.n_prompt <= length && length <= spec.max_length, "{} of {} of {} tokens",
              spec.n_prompt, length, spec.max_length);
  const int64_t places = spec.max_places > 0 ? spec.max_places : spec.max_length;
  const PoolCounts least = LeastBlocks(cache.layout(), spec.max_length, places);
  const PoolCounts& total = cache.options().n_blocks;
  for (size_t pool = 0; pool < cache.layout().pools().size(); ++pool) {
    if (least[pool] <= total[pool]) continue;
    return Err(ErrorCode::kCapacity,
               "a sequence of up to {} tokens needs {}, but the cache has {} in all",
               spec.max_length, BlockText(cache.layout(), pool, least[pool]),
               BlockText(cache.layout(), pool, total[pool]));
  }
  return {};
}

Sequence& Scheduler::Impl::Insert(std::unique_ptr<Sequence> sequence) {
  Sequence& inserted = *sequence;
  inserted.id = next_id++;
  ClientCame(inserted.spec.client);
  ++CountOf(inserted.status);
  view.push_back(sequence.get());
  sequences.push_back(std::move(sequence));
  return inserted;
}

int64_t& Scheduler::Impl::CountOf(SequenceStatus status) {
  switch (status) {
    case SequenceStatus::kRunning:
      return stats.running;
    case SequenceStatus::kSwapped:
      return stats.swapped;
    case SequenceStatus::kWaiting:
      break;
  }
  return stats.waiting;
}

void Scheduler::Impl::SetStatus(Sequence& sequence, SequenceStatus status) {
  --CountOf(sequence.status);
  sequence.status = status;
  ++CountOf(status);
}

int64_t Scheduler::Impl::LeastServed() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [client, count] : present) least = std::min(least, served.at(client));
  return least;
}

// A client that comes back starts level with the least served one: it must not make up for the time
// in which it asked for nothing.
void Scheduler::Impl::ClientCame(const std::string& client) {
  if (present[client]++ > 0) return;
  int64_t& tokens = served[client];
  if (present.size() == 1) return;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [other, count] : present) {
    if (other != client) least = std::min(least, served.at(other));
  }
  tokens = std::max(tokens, least);
}

void Scheduler::Impl::ClientLeft(const std::string& client) {
  const auto found = present.find(client);
  LUCID_CHECK(found != present.end(), "client '{}' is not here", client);
  if (--found->second > 0) return;
  present.erase(found);
  // Counters that a client would not get back anyway are forgotten.
  const int64_t least = LeastServed();
  std::erase_if(served, [&](const auto& entry) {
    return !present.contains(entry.first) && entry.second <= least;
  });
}

// --- Carrying out a plan ---

void Scheduler::Impl::Preempt(Sequence& sequence) {
  if (sequence.status != SequenceStatus::kRunning) return;
  ++sequence.preemptions;
  if (options.preemption == PreemptionMode::kSwap && cache.SwapOut(sequence.kv)) {
    SetStatus(sequence, SequenceStatus::kSwapped);
    ++stats.preemptions_swap;
    return;
  }
  cache.Close(sequence.kv);
  sequence.kv = -1;
  sequence.n_computed = 0;
  SetStatus(sequence, SequenceStatus::kWaiting);
  ++stats.preemptions_recompute;
}

void Scheduler::Impl::Admit(Sequence& sequence) {
  sequence.kv = cache.Open(sequence.spec.share, sequence.spec.root);
  if (sequence.spec.share) {
    sequence.n_computed =
        cache.Attach(sequence.kv, sequence.tokens, sequence.most_cached(cache.options().strict),
                     sequence.spec.n_prompt);
  }
  if (sequence.preemptions == 0) sequence.cached_tokens = sequence.n_computed;
  SetStatus(sequence, SequenceStatus::kRunning);
}

// Blocks for a chunk, which becomes shorter if they do not suffice. False: none at all.
bool Scheduler::Impl::TakeBlocks(Chunk& chunk) {
  Sequence* sequence = Find(chunk.id);
  if (sequence == nullptr || sequence->status != SequenceStatus::kRunning) return false;
  chunk.first = sequence->n_computed;
  chunk.count = std::min(chunk.count, sequence->to_compute());
  if (chunk.count <= 0) return false;
  if (cache.Reserve(sequence->kv, chunk.first + chunk.count)) return true;
  chunk.count = LargestCount(chunk.count, [&](int64_t n) {
    return Fits(cache.Need(sequence->kv, chunk.first + n), cache.available());
  });
  return chunk.count > 0 && cache.Reserve(sequence->kv, chunk.first + chunk.count);
}

// --- Scheduler ---

Scheduler::Scheduler(const SchedulerOptions& options, KvCache& cache)
    : impl_(std::make_unique<Impl>(options, cache)) {}
Scheduler::~Scheduler() = default;

Result<SequenceId> Scheduler::Add(SequenceSpec spec) {
  LUCID_RETURN_IF_ERROR(impl_->CheckSpec(spec));
  if (impl_->stats.waiting >= impl_->options.max_waiting) {
    return Err(ErrorCode::kCapacity, "the queue holds {} requests already (its limit is {})",
               impl_->stats.waiting, impl_->options.max_waiting);
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->spec = std::move(spec);
  sequence->tokens = sequence->spec.tokens;
  sequence->waiting_since = impl_->step;
  return impl_->Insert(std::move(sequence)).id;
}

Status Scheduler::CheckFits(const SequenceSpec& spec) const {
  return impl_->CheckSpec(spec);
}

SequenceId Scheduler::Fork(SequenceId parent_id) {
  const Sequence& parent = impl_->At(parent_id);
  auto sequence = std::make_unique<Sequence>(parent);
  sequence->blocked = false;
  sequence->preemptions = 0;
  if (parent.status == SequenceStatus::kRunning) {
    sequence->kv = impl_->cache.Fork(parent.kv);
  } else {
    sequence->status = SequenceStatus::kWaiting;
    sequence->kv = -1;
    sequence->n_computed = 0;
    sequence->furthest = 0;
    sequence->cached_tokens = 0;
  }
  return impl_->Insert(std::move(sequence)).id;
}

Result<SequenceId> Scheduler::Adopt(SequenceSpec spec, SequenceHandle kv, int64_t n_computed) {
  LUCID_RETURN_IF_ERROR(impl_->CheckSpec(spec));
  if (impl_->stats.running >= impl_->options.max_sequences) {
    return Err(ErrorCode::kCapacity, "{} sequences run already (the limit is {})",
               impl_->stats.running, impl_->options.max_sequences);
  }
  LUCID_CHECK(n_computed <= static_cast<int64_t>(spec.tokens.size()) &&
                  impl_->cache.length(kv) == n_computed,
              "{} tokens are said to be cached, {} are", n_computed, impl_->cache.length(kv));
  auto sequence = std::make_unique<Sequence>();
  sequence->spec = std::move(spec);
  sequence->tokens = sequence->spec.tokens;
  sequence->status = SequenceStatus::kRunning;
  sequence->kv = kv;
  sequence->n_computed = n_computed;
  sequence->waiting_since = impl_->step;
  return impl_->Insert(std::move(sequence)).id;
}

void Scheduler::Append(SequenceId id, int32_t token) {
  Sequence& sequence = impl_->At(id);
  LUCID_CHECK(sequence.length() < sequence.spec.max_length, "sequence {} has {} tokens already", id,
              sequence.length());
  sequence.tokens.push_back(token);
}

void Scheduler::SetBlocked(SequenceId id, bool blocked) {
  impl_->At(id).blocked = blocked;
}

void Scheduler::SetMaxChunk(SequenceId id, int64_t tokens) {
  impl_->At(id).max_chunk = tokens;
}

void Scheduler::Remove(SequenceId id) {
  Sequence& sequence = impl_->At(id);
  if (sequence.kv >= 0) impl_->cache.Close(sequence.kv);
  --impl_->CountOf(sequence.status);
  impl_->ClientLeft(sequence.spec.client);
  const auto place = std::find(impl_->view.begin(), impl_->view.end(), &sequence);
  impl_->sequences.erase(impl_->sequences.begin() + (place - impl_->view.begin()));
  impl_->view.erase(place);
}

bool Scheduler::idle() const {
  return impl_->sequences.empty();
}

const Sequence& Scheduler::Get(SequenceId id) const {
  return impl_->At(id);
}

StepPlan Scheduler::Decide() const {
  return lucid::Decide({.options = impl_->options,
                        .step = impl_->step,
                        .sequences = impl_->view,
                        .cache = &impl_->cache,
                        .cost = &impl_->cost,
                        .served = &impl_->served});
}

void Scheduler::Apply(StepPlan& plan) {
  for (const SequenceId id : plan.preempt) {
    if (Sequence* sequence = impl_->Find(id)) impl_->Preempt(*sequence);
  }
  std::erase_if(plan.swap_in, [&](SequenceId id) {
    Sequence* sequence = impl_->Find(id);
    if (sequence == nullptr || sequence->status != SequenceStatus::kSwapped) return true;
    if (!impl_->cache.SwapIn(sequence->kv)) return true;
    impl_->SetStatus(*sequence, SequenceStatus::kRunning);
    return false;
  });
  std::erase_if(plan.admit, [&](SequenceId id) {
    Sequence* sequence = impl_->Find(id);
    if (sequence == nullptr || sequence->status != SequenceStatus::kWaiting) return true;
    impl_->Admit(*sequence);
    return false;
  });
  std::erase_if(plan.chunks, [&](Chunk& chunk) { return !impl_->TakeBlocks(chunk); });

  const auto decodes = [&](const Chunk& chunk) { return impl_->At(chunk.id).decoding(); };
  // A recomputed sequence whose whole prompt was found has one row left, after all. Looked for
  // first, since moving takes memory.
  if (!std::is_partitioned(plan.chunks.begin(), plan.chunks.end(), decodes))
    std::stable_partition(plan.chunks.begin(), plan.chunks.end(), decodes);
  plan.decode_tokens = plan.prefill_tokens = 0;
  for (const Chunk& chunk : plan.chunks) {
    (decodes(chunk) ? plan.decode_tokens : plan.prefill_tokens) += chunk.count;
  }
}

void Scheduler::Commit(const StepPlan& plan, double seconds) {
  StepLoad load;
  SchedulerStats& stats = impl_->stats;
  for (const Chunk& chunk : plan.chunks) {
    Sequence* sequence = impl_->Find(chunk.id);
    if (sequence == nullptr) continue;
    LUCID_CHECK(sequence->status == SequenceStatus::kRunning && sequence->n_computed == chunk.first,
                "sequence {} has {} tokens, its chunk begins at {}", chunk.id, sequence->n_computed,
                chunk.first);
    if (sequence->decoding()) {
      AddDecode(*sequence, chunk.first, load);
    } else {
      AddPrefill(*sequence, chunk.first, chunk.count, load);
    }
    const int64_t end = chunk.first + chunk.count;
    impl_->cache.Commit(sequence->kv, sequence->tokens, end, sequence->spec.n_prompt);
    sequence->n_computed = end;
    sequence->last_step = impl_->step;
    // Work that is done again after a preemption is not the client's.
    const int64_t again = std::clamp<int64_t>(sequence->furthest - chunk.first, 0, chunk.count);
    stats.recomputed_tokens += again;
    impl_->served.at(sequence->spec.client) += chunk.count - again;
    sequence->furthest = std::max(sequence->furthest, end);
  }
  ++impl_->step;
  if (plan.chunks.empty()) return;
  ++stats.steps;
  stats.decode_tokens += load.decode_tokens;
  stats.prefill_tokens += load.prefill_tokens;
  if (seconds > 0) impl_->cost.Observe(load, seconds);
}

const SchedulerStats& Scheduler::stats() const {
  return impl_->stats;
}

const CostModel& Scheduler::cost() const {
  return impl_->cost;
}

Status Scheduler::CheckInvariants() const {
  const auto broken = [](const Sequence& sequence, std::string_view what) {
    return Err(ErrorCode::kInvalidArgument, "sequence {} {}", sequence.id, what);
  };
  SchedulerStats counts;
  std::map<std::string, int64_t> present;
  SequenceId last = 0;
  for (const std::unique_ptr<Sequence>& entry : impl_->sequences) {
    const Sequence& sequence = *entry;
    if (sequence.id <= last) return broken(sequence, "is out of order");
    last = sequence.id;
    ++present[sequence.spec.client];
    if (sequence.n_computed < 0 || sequence.n_computed > sequence.length()) {
      return broken(sequence, "has computed more tokens than it has");
    }
    if (sequence.length() > sequence.spec.max_length) return broken(sequence, "is too long");
    if (sequence.status == SequenceStatus::kWaiting) {
      ++counts.waiting;
      if (sequence.kv >= 0 || sequence.n_computed != 0)
        return broken(sequence, "waits with blocks");
      continue;
    }
    const bool swapped = sequence.status == SequenceStatus::kSwapped;
    ++(swapped ? counts.swapped : counts.running);
    if (sequence.kv < 0) return broken(sequence, "has no place in the cache");
    if (impl_->cache.swapped(sequence.kv) != swapped) {
      return broken(sequence, "and the cache disagree on whether it is swapped out");
    }
    if (impl_->cache.length(sequence.kv) != sequence.n_computed) {
      return broken(sequence, "and the cache disagree on its length");
    }
  }
  const SchedulerStats& stats = impl_->stats;
  if (counts.waiting != stats.waiting || counts.running != stats.running ||
      counts.swapped != stats.swapped) {
    return Err(ErrorCode::kInvalidArgument,
               "{} sequences wait, {} run, {} are swapped; counted {}, {}, {}", counts.waiting,
               counts.running, counts.swapped, stats.waiting, stats.running, stats.swapped);
  }
  if (present != impl_->present) {
    return Err(ErrorCode::kInvalidArgument, "the sequences of the clients are miscounted");
  }
  return impl_->cache.CheckInvariants();
}

}  // namespace lucid
