// The scheduler and the cache under random load, without a model: requests of random lengths come,
// fork, wait for each other and are aborted, in pools that are far too small. The memory behind the
// cache holds, per position, a hash of the tokens up to it, so that every row that is "computed"
// checks that it reads exactly its own prefix, computed in the right phase.
//
// LUCID_SIM_SEEDS sets the number of seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/kv_layout.h"
#include "sched/scheduler.h"

namespace lucid {
namespace {

#ifdef NDEBUG
constexpr int kDefaultSeeds = 1000;
#else
constexpr int kDefaultSeeds = 200;  // unoptimised
#endif

int SeedCount() {
  const char* text = std::getenv("LUCID_SIM_SEEDS");
  return text != nullptr ? std::max(1, std::atoi(text)) : kDefaultSeeds;
}

// One 64-bit cell per position: a hash of the tokens 0 .. position, whose lowest bit says whether
// it was computed in the prompt phase.
class TokenMemory final : public KvMemory {
 public:
  TokenMemory(const KvLayout& layout, const PoolCounts& n_blocks) {
    for (size_t pool = 0; pool < layout.pools().size(); ++pool) {
      bytes_.push_back(layout.pools()[pool].block_bytes);
      data_.emplace_back(static_cast<size_t>(n_blocks[pool] * bytes_[pool]));
    }
  }

  uint64_t Get(int32_t pool, int32_t block, int64_t place) const {
    uint64_t cell = 0;
    std::memcpy(&cell, At(pool, block) + place * 8, 8);
    return cell;
  }
  void Set(int32_t pool, int32_t block, int64_t place, uint64_t cell) {
    std::memcpy(At(pool, block) + place * 8, &cell, 8);
  }

  void CopyBlock(int32_t pool, int32_t from, int32_t to) override {
    std::memcpy(At(pool, to), At(pool, from), Size(pool));
  }
  void ReadBlock(int32_t pool, int32_t block, std::byte* bytes) const override {
    std::memcpy(bytes, At(pool, block), Size(pool));
  }
  void WriteBlock(int32_t pool, int32_t block, const std::byte* bytes) override {
    std::memcpy(At(pool, block), bytes, Size(pool));
  }

 private:
  size_t Size(int32_t pool) const { return static_cast<size_t>(bytes_[static_cast<size_t>(pool)]); }
  const std::byte* At(int32_t pool, int32_t block) const {
    return data_[static_cast<size_t>(pool)].data() + static_cast<size_t>(block) * Size(pool);
  }
  std::byte* At(int32_t pool, int32_t block) {
    return data_[static_cast<size_t>(pool)].data() + static_cast<size_t>(block) * Size(pool);
  }

  std::vector<int64_t> bytes_;
  std::vector<std::vector<std::byte>> data_;
};

uint64_t Mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 32);
}

enum class Kind { kPlain, kSamples, kBeams, kBounded };

struct Request {
  Kind kind = Kind::kPlain;
  int64_t width = 1;  // samples or beams
  int64_t reply_tokens = 0;
  int64_t budget = 0;     // kBounded: places
  int64_t submitted = 0;  // step
  std::vector<SequenceId> sequences;
};

// What the test knows of a sequence beside the scheduler.
struct Twin {
  int request = 0;
  bool computed = false;           // its newest token was computed
  std::vector<uint64_t> prefixes;  // hash by position
  std::vector<int64_t> places;     // kBounded: position by place
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {
    MakeCache();
    MakeOptions();
    memory_ = std::make_unique<TokenMemory>(layout_, cache_options_.n_blocks);
    cache_ = *KvCache::Create(layout_, cache_options_, *memory_);
    scheduler_ = std::make_unique<Scheduler>(options_, *cache_);
    prefix_.resize(static_cast<size_t>(longest_ * 3 / 4));
    for (int32_t& token : prefix_) token = static_cast<int32_t>(Below(4));
    to_come_ = 10 + Below(50);
    every_ = 1 + Below(6);
    abort_share_ = Chance(0.5) ? 0.0 : 0.02;
  }

  void Run() {
    while (to_come_ > 0 || !requests_.empty()) {
      if (to_come_ > 0 && Below(every_) == 0) Arrive();
      if (Chance(abort_share_) && !requests_.empty()) Abort();
      Step();
      if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) return;
    }
    ASSERT_TRUE(scheduler_->idle());
    const KvCacheStats stats = cache_->stats();
    EXPECT_EQ(stats.sequences, 0);
    for (size_t pool = 0; pool < layout_.pools().size(); ++pool) {
      EXPECT_EQ(stats.held[pool], 0);
      EXPECT_EQ(stats.swapped[pool], 0);
      EXPECT_EQ(stats.free[pool] + stats.cached[pool], stats.total[pool]);
    }
  }

  int64_t refused() const { return refused_; }
  const SchedulerStats& stats() const { return scheduler_->stats(); }
  double worst_wait() const { return worst_wait_; }

 private:
  bool packed() const { return layout_.options().k_type == KvType::kKivi2; }
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(1, n)));
  }
  bool Chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }

  void MakeCache() {
    std::vector<KvSpec> layers;
    if (Chance(0.04)) return MakeKiviCache();
    const int64_t layout = Below(4);
    const int64_t window = 3 + Below(14);
    if (layout != 3) layers.push_back({.heads = 1, .k_dim = 4, .v_dim = 4});
    if (layout > 0) layers.push_back({.heads = 1, .k_dim = 4, .v_dim = 4, .window = window});
    // Larger pages: a pool of their own.
    if (layout == 2) layers.push_back({.heads = 2, .k_dim = 4, .v_dim = 4, .window = window + 5});
    layout_ = *KvLayout::Make(
        layers, {.k_type = KvType::kF16, .v_type = KvType::kF16, .block_size = 1 + Below(8)});
    longest_ = 12 + Below(60);
    FillPools();
  }

  // Packed blocks beside the newest positions in full precision, of which there are 128 at least.
  void MakeKiviCache() {
    const std::vector<KvSpec> layers(2, {.heads = 1, .k_dim = 4, .v_dim = 4});
    layout_ = *KvLayout::Make(
        layers,
        {.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 4 * (1 + Below(4))});
    longest_ = 140 + Below(60);
    FillPools();
  }

  void FillPools() {
    const double plenty = Chance(0.3) ? 4 : 1;
    for (size_t pool = 0; pool < layout_.pools().size(); ++pool) {
      const int64_t one = layout_.BlocksFor(0, longest_)[pool] + 1;
      cache_options_.n_blocks[pool] =
          one + static_cast<int64_t>(static_cast<double>(Below(3 * one)) * plenty);
      cache_options_.swap_blocks[pool] = Below(3 * one);
    }
    cache_options_.prefix_sharing = Chance(0.7);
    cache_options_.strict = Chance(0.5);
  }

  void MakeOptions() {
    options_.max_step_tokens = 1 + Below(40);
    options_.max_sequences = 1 + Below(12);
    options_.max_waiting = 5 + Below(60);
    options_.chunk = Chance(0.5) ? 0 : 1 + Below(20);
    options_.itl_target_seconds = Chance(0.4) ? 0.02 : 0.0;
    options_.min_chunk = 1 + Below(8);
    options_.preemption = Chance(0.5) ? PreemptionMode::kSwap : PreemptionMode::kRecompute;
    options_.aging_steps = 1 + Below(30);
  }

  std::vector<int32_t> Prompt(int64_t length) {
    std::vector<int32_t> tokens;
    if (Chance(0.6)) {
      tokens.assign(prefix_.begin(),
                    prefix_.begin() + Below(std::min<int64_t>(length, std::ssize(prefix_))));
    }
    while (std::ssize(tokens) < length) tokens.push_back(static_cast<int32_t>(Below(3)));
    return tokens;
  }

  void Arrive() {
    --to_come_;
    Request request;
    const int64_t kind = Below(10);
    request.kind = kind < 6 || (kind > 7 && packed()) ? Kind::kPlain
                   : kind == 6                        ? Kind::kSamples
                   : kind == 7                        ? Kind::kBeams
                                                      : Kind::kBounded;
    SequenceSpec spec;
    const bool too_long = Chance(0.03);
    const int64_t prompt = 1 + Below(too_long ? 40 * longest_ : longest_ - 1);
    spec.tokens = Prompt(prompt);
    spec.n_prompt = prompt;
    request.reply_tokens = 1 + Below(std::max<int64_t>(1, longest_ - prompt));
    spec.max_length = prompt + request.reply_tokens;
    spec.priority = static_cast<int32_t>(Below(3)) - 1;
    spec.client = std::string(1, static_cast<char>('a' + Below(4)));
    spec.share = Chance(0.85);
    spec.root = static_cast<uint64_t>(Below(2));
    if (request.kind == Kind::kSamples || request.kind == Kind::kBeams) {
      request.width = 2 + Below(4);
    }
    if (request.kind == Kind::kBounded) {
      spec.share = false;
      request.budget = layout_.block_size() * (2 + Below(3));
      spec.max_places = std::min(request.budget, spec.max_length);
    }
    const int64_t tokens = spec.max_length * request.width;
    const Result<SequenceId> id = scheduler_->Add(spec);
    if (!id) {
      EXPECT_EQ(id.error().code, ErrorCode::kCapacity);
      ++refused_;
      return;
    }
    work_ += tokens;
    request.submitted = step_;
    request.sequences.push_back(*id);
    const int number = next_request_++;
    requests_[number] = request;
    twins_[*id].request = number;
    LimitChunk(*id);
  }

  void Abort() {
    auto chosen = requests_.begin();
    std::advance(chosen, Below(std::ssize(requests_)));
    End(chosen->first);
  }

  void End(int number) {
    for (const SequenceId id : requests_.at(number).sequences) Drop(id);
    requests_.erase(number);
  }
  void Drop(SequenceId id) {
    scheduler_->Remove(id);
    twins_.erase(id);
  }

  void Step();
  void CheckPlan(const StepPlan& plan, const std::vector<SequenceId>& decoding);
  void Compute(const Chunk& chunk);
  void CheckRow(const Sequence& sequence, const Twin& twin, size_t group, int64_t position);
  void Evict(SequenceId id);
  void LimitChunk(SequenceId id);
  void Sample();
  void Advance(int number);
  void AdvanceBeams(Request& request);
  void Extend(SequenceId id);
  void CheckBounds();
  double Seconds(const StepPlan& plan);

  std::mt19937_64 random_;
  KvLayout layout_;
  int64_t longest_ = 0;
  KvCacheOptions cache_options_;
  SchedulerOptions options_;
  std::unique_ptr<TokenMemory> memory_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<int32_t> prefix_;  // that many prompts share
  int64_t to_come_ = 0;
  int64_t every_ = 1;
  double abort_share_ = 0;

  std::map<int, Request> requests_;
  std::map<SequenceId, Twin> twins_;
  int next_request_ = 0;
  int64_t step_ = 0;
  int64_t work_ = 0;  // tokens of everything that was accepted
  int64_t steps_without_chunk_ = 0;
  int64_t refused_ = 0;
  double worst_wait_ = 0;
};

// Made up, but of the shape that the cost model assumes.
double Simulation::Seconds(const StepPlan& plan) {
  const double noise = 0.95 + 0.1 * static_cast<double>(Below(1000)) / 1000;
  return noise * (0.002 + 0.0005 * static_cast<double>(plan.decode_tokens) +
                  0.001 * static_cast<double>(plan.prefill_tokens));
}

void Simulation::Step() {
  ++step_;
  StepPlan plan = scheduler_->Decide();
  std::vector<SequenceId> decoding;
  for (const auto& [id, twin] : twins_) {
    const Sequence& sequence = scheduler_->Get(id);
    if (sequence.status == SequenceStatus::kRunning && !sequence.blocked && sequence.decoding()) {
      decoding.push_back(id);
    }
  }
  EXPECT_TRUE(twins_.empty() || !plan.empty()) << "step " << step_ << " does nothing";
  scheduler_->Apply(plan);
  CheckPlan(plan, decoding);
  for (const SequenceId id : plan.preempt) {
    if (scheduler_->Get(id).status == SequenceStatus::kWaiting) twins_.at(id).places.clear();
    LimitChunk(id);
  }
  for (const Chunk& chunk : plan.chunks) Compute(chunk);
  scheduler_->Commit(plan, Chance(0.9) ? Seconds(plan) : 0);
  for (const Chunk& chunk : plan.chunks) Evict(chunk.id);
  steps_without_chunk_ = plan.chunks.empty() && !twins_.empty() ? steps_without_chunk_ + 1 : 0;
  EXPECT_LE(steps_without_chunk_, 2) << "step " << step_;
  Sample();
  CheckBounds();
  const Status status = scheduler_->CheckInvariants();
  EXPECT_TRUE(status) << status.error().message;
}

void Simulation::CheckPlan(const StepPlan& plan, const std::vector<SequenceId>& decoding) {
  int64_t tokens = 0;
  std::set<SequenceId> planned;
  bool prefill_began = false;
  for (const Chunk& chunk : plan.chunks) {
    const Sequence& sequence = scheduler_->Get(chunk.id);
    tokens += chunk.count;
    EXPECT_TRUE(planned.insert(chunk.id).second) << "two chunks of one sequence";
    EXPECT_FALSE(sequence.blocked);
    EXPECT_EQ(sequence.status, SequenceStatus::kRunning);
    EXPECT_EQ(chunk.first, sequence.n_computed);
    EXPECT_GE(chunk.count, 1);
    EXPECT_LE(chunk.first + chunk.count, sequence.length());
    EXPECT_TRUE(sequence.max_chunk == 0 || chunk.count <= sequence.max_chunk);
    EXPECT_FALSE(prefill_began && sequence.decoding()) << "decode rows come first";
    prefill_began = prefill_began || !sequence.decoding();
  }
  EXPECT_EQ(tokens, plan.decode_tokens + plan.prefill_tokens);
  EXPECT_LE(tokens, options_.max_step_tokens);
  EXPECT_TRUE(options_.chunk == 0 || plan.prefill_tokens <= options_.chunk);
  EXPECT_LE(scheduler_->stats().running, options_.max_sequences);
  if (plan.prefill_tokens == 0 || !plan.preempt.empty()) return;
  for (const SequenceId id : decoding) {
    EXPECT_TRUE(planned.contains(id)) << "stream " << id << " waits while a prompt is computed";
  }
}

// Writes the chunk's cells, then lets each row read what it attends to.
void Simulation::Compute(const Chunk& chunk) {
  const Sequence& sequence = scheduler_->Get(chunk.id);
  Twin& twin = twins_.at(chunk.id);
  while (std::ssize(twin.prefixes) < sequence.length()) {
    const size_t position = twin.prefixes.size();
    const uint64_t before = position == 0 ? sequence.spec.root : twin.prefixes[position - 1];
    twin.prefixes.push_back(
        Mix(before * 31 + static_cast<uint64_t>(sequence.tokens[position]) + 1));
  }
  const bool bounded = requests_.at(twin.request).kind == Kind::kBounded;
  const int64_t dropped = cache_->dropped(sequence.kv);
  if (bounded) {
    EXPECT_EQ(std::ssize(twin.places), chunk.first - dropped);
    for (int64_t i = 0; i < chunk.count; ++i) twin.places.push_back(chunk.first + i);
  } else {
    EXPECT_EQ(dropped, 0);
  }
  for (size_t group = 0; group < layout_.groups().size(); ++group) {
    const KvGroup& kind = layout_.groups()[group];
    const std::span<const int32_t> table = cache_->Table(sequence.kv, group);
    if (kind.kind == KvGroupKind::kPacked) {  // what is in its blocks is the kernels' business
      const BlockRange needed = layout_.Needed(group, chunk.first, chunk.first + chunk.count);
      for (int64_t block = needed.first; block < needed.last; ++block) {
        ASSERT_LT(block, std::ssize(table));
        ASSERT_GE(table[static_cast<size_t>(block)], 0);
      }
      continue;
    }
    for (int64_t position = chunk.first; position < chunk.first + chunk.count; ++position) {
      const int64_t place = kind.kind == KvGroupKind::kFull ? position - dropped : position;
      const uint64_t prompt_phase = position < sequence.spec.n_prompt ? 1 : 0;
      const auto block = static_cast<size_t>(place / layout_.block_size());
      ASSERT_LT(block, table.size());
      ASSERT_GE(table[block], 0);
      memory_->Set(kind.pool, table[block], place % layout_.block_size(),
                   (twin.prefixes[static_cast<size_t>(position)] & ~uint64_t{1}) | prompt_phase);
    }
    for (int64_t position = chunk.first; position < chunk.first + chunk.count; ++position) {
      CheckRow(sequence, twin, group, position);
    }
  }
  if (chunk.first + chunk.count == sequence.length()) twin.computed = true;
}

void Simulation::CheckRow(const Sequence& sequence, const Twin& twin, size_t group,
                          int64_t position) {
  const KvGroup& kind = layout_.groups()[group];
  const std::span<const int32_t> table = cache_->Table(sequence.kv, group);
  const bool full = kind.kind == KvGroupKind::kFull;
  const bool bounded = full && !twin.places.empty();
  const int64_t dropped = full ? cache_->dropped(sequence.kv) : 0;
  const int64_t from = full ? 0 : std::max<int64_t>(0, position + 1 - kind.window);
  for (int64_t place = from; place <= position - dropped; ++place) {
    const int64_t key = bounded ? twin.places[static_cast<size_t>(place)] : place;
    const auto block = static_cast<size_t>(place / layout_.block_size());
    ASSERT_LT(block, table.size());
    ASSERT_GE(table[block], 0) << "a block that row " << position << " reads has left";
    const uint64_t cell = memory_->Get(kind.pool, table[block], place % layout_.block_size());
    ASSERT_EQ(cell | 1, twin.prefixes[static_cast<size_t>(key)] | 1)
        << "sequence " << sequence.id << ", row " << position << " reads another's key at " << key;
    if (key >= sequence.spec.n_prompt) {
      ASSERT_EQ(cell & 1, 0u) << "a generated token was computed as a prompt";
    } else if (cache_options_.strict) {
      ASSERT_EQ(cell & 1, 1u) << "a prompt token was computed as a reply";
    }
  }
}

// A bounded cache: when `budget` places are full the oldest block of them goes.
void Simulation::Evict(SequenceId id) {
  Twin& twin = twins_.at(id);
  const Request& request = requests_.at(twin.request);
  const Sequence& sequence = scheduler_->Get(id);
  if (request.kind != Kind::kBounded) return;
  if (std::ssize(twin.places) == request.budget) {
    const int64_t size = layout_.block_size();
    const int64_t left = request.budget - size;
    for (size_t group = 0; group < layout_.groups().size(); ++group) {
      const KvGroup& kind = layout_.groups()[group];
      if (kind.kind != KvGroupKind::kFull) continue;
      const std::span<const int32_t> table = cache_->Table(sequence.kv, group);
      for (int64_t place = 0; place < left; ++place) {
        memory_->Set(
            kind.pool, table[static_cast<size_t>(place / size)], place % size,
            memory_->Get(kind.pool, table[static_cast<size_t>(place / size + 1)], place % size));
      }
    }
    twin.places.erase(twin.places.begin(), twin.places.begin() + size);
    cache_->DropPlaces(sequence.kv, left);
  }
  LimitChunk(id);
}

void Simulation::LimitChunk(SequenceId id) {
  const Twin& twin = twins_.at(id);
  const Request& request = requests_.at(twin.request);
  if (request.kind != Kind::kBounded) return;
  scheduler_->SetMaxChunk(id, request.budget - std::ssize(twin.places));
}

void Simulation::Sample() {
  std::vector<int> numbers;
  for (const auto& [number, request] : requests_) numbers.push_back(number);
  for (const int number : numbers) Advance(number);
}

void Simulation::Extend(SequenceId id) {
  scheduler_->Append(id, static_cast<int32_t>(Below(3)));
  twins_.at(id).computed = false;
}

void Simulation::Advance(int number) {
  Request& request = requests_.at(number);
  const Sequence& leader = scheduler_->Get(request.sequences[0]);
  if (request.kind == Kind::kBeams) {
    AdvanceBeams(request);
    if (request.sequences.empty()) End(number);
    return;
  }
  if (request.kind == Kind::kSamples && request.sequences.size() == 1 &&
      leader.length() == leader.spec.n_prompt && twins_.at(leader.id).computed) {
    for (int64_t i = 1; i < request.width; ++i) {
      const SequenceId id = scheduler_->Fork(request.sequences[0]);
      twins_[id] = twins_.at(request.sequences[0]);
      request.sequences.push_back(id);
    }
  }
  std::erase_if(request.sequences, [&](SequenceId id) {
    const Sequence& sequence = scheduler_->Get(id);
    if (!twins_.at(id).computed) return false;
    if (sequence.length() + 1 >= sequence.spec.max_length) {
      Drop(id);
      return true;
    }
    Extend(id);
    return false;
  });
  if (request.sequences.empty()) End(number);
}

// Beams wait until all siblings have computed their newest token; then some are given up and others
// branch off.
void Simulation::AdvanceBeams(Request& request) {
  bool all = true;
  for (const SequenceId id : request.sequences) {
    const bool computed = twins_.at(id).computed;
    scheduler_->SetBlocked(id, computed);
    all = all && computed;
  }
  if (!all) return;
  const Sequence& first = scheduler_->Get(request.sequences[0]);
  if (first.length() + 1 >= first.spec.max_length) {
    for (const SequenceId id : request.sequences) Drop(id);
    request.sequences.clear();
    return;
  }
  std::vector<SequenceId> living;
  std::set<SequenceId> used;
  for (int64_t i = 0; i < request.width; ++i) {
    const SequenceId parent =
        request.sequences[static_cast<size_t>(Below(std::ssize(request.sequences)))];
    SequenceId id = parent;
    if (!used.insert(parent).second) {
      id = scheduler_->Fork(parent);
      twins_[id] = twins_.at(parent);
    }
    living.push_back(id);
  }
  for (const SequenceId id : request.sequences) {
    if (!used.contains(id)) Drop(id);
  }
  request.sequences = living;
  for (const SequenceId id : living) {
    Extend(id);
    scheduler_->SetBlocked(id, false);
  }
}

// Every request ends within 100 + 12 w steps of its coming, w being the tokens of all that was
// accepted until then and since.
void Simulation::CheckBounds() {
  for (const auto& [number, request] : requests_) {
    const int64_t age = step_ - request.submitted;
    worst_wait_ = std::max(worst_wait_, static_cast<double>(age) / static_cast<double>(work_));
    ASSERT_LE(age, 100 + 12 * work_) << "request " << number << " starves";
  }
}

TEST(SchedulerSimulationTest, EveryRequestEndsAndNothingLeaks) {
  const int seeds = SeedCount();
  SchedulerStats sum;
  int64_t refused = 0;
  double worst = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(static_cast<uint64_t>(seed));
    simulation.Run();
    if (HasFailure()) break;
    sum.preemptions_recompute += simulation.stats().preemptions_recompute;
    sum.preemptions_swap += simulation.stats().preemptions_swap;
    sum.recomputed_tokens += simulation.stats().recomputed_tokens;
    sum.steps += simulation.stats().steps;
    sum.decode_tokens += simulation.stats().decode_tokens;
    sum.prefill_tokens += simulation.stats().prefill_tokens;
    refused += simulation.refused();
    worst = std::max(worst, simulation.worst_wait());
  }
  // The load is hard enough to reach every path.
  EXPECT_GT(sum.preemptions_recompute, 0);
  EXPECT_GT(sum.preemptions_swap, 0);
  EXPECT_GT(sum.recomputed_tokens, 0);
  EXPECT_GT(refused, 0);
  std::printf(
      "%d seeds: %lld steps, %lld decode and %lld prefill tokens, %lld recomputed, %lld + "
      "%lld preemptions, longest wait %.2f steps per token\n",
      seeds, static_cast<long long>(sum.steps), static_cast<long long>(sum.decode_tokens),
      static_cast<long long>(sum.prefill_tokens), static_cast<long long>(sum.recomputed_tokens),
      static_cast<long long>(sum.preemptions_recompute),
      static_cast<long long>(sum.preemptions_swap), worst);
}

}  // namespace
}  // namespace lucid
