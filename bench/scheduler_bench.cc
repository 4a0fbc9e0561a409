// What scheduling costs in a step of decoding streams: the choice, the blocks, the records and the
// new tokens, without any model. The target is 100 us at 64 sequences.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/kv_layout.h"
#include "sched/scheduler.h"

namespace lucid {
namespace {

constexpr int64_t kLength = 30000;  // tokens that a sequence may come to

class NoMemory final : public KvMemory {
 public:
  explicit NoMemory(const KvLayout& layout) : layout_(layout) {}
  void CopyBlock(int32_t, int32_t, int32_t) override {}
  void ReadBlock(int32_t pool, int32_t, std::byte* bytes) const override {
    std::memset(bytes, 0,
                static_cast<size_t>(layout_.pools()[static_cast<size_t>(pool)].block_bytes));
  }
  void WriteBlock(int32_t, int32_t, const std::byte*) override {}

 private:
  const KvLayout& layout_;
};

// `n` sequences with prompts of 256 tokens, computed; `n_waiting` more that find no place.
struct Load {
  Load(int64_t n, int64_t n_waiting, bool windows, double itl_target_seconds) {
    std::vector<KvSpec> layers(6, {.heads = 2, .k_dim = 64, .v_dim = 64});
    for (size_t i = 1; windows && i < layers.size(); ++i) layers[i].window = 512;
    layout = *KvLayout::Make(layers, {});
    memory = std::make_unique<NoMemory>(layout);
    KvCacheOptions cache_options;
    cache_options.n_blocks = layout.BlocksForAll(n, kLength, 512);
    cache = *KvCache::Create(layout, cache_options, *memory);
    SchedulerOptions options;
    options.max_step_tokens = std::max<int64_t>(512, n);
    options.max_sequences = n;
    options.max_waiting = n + n_waiting;
    options.itl_target_seconds = itl_target_seconds;
    scheduler = std::make_unique<Scheduler>(options, *cache);
    for (int64_t i = 0; i < n + n_waiting; ++i) {
      SequenceSpec spec;
      spec.tokens.resize(256);
      std::iota(spec.tokens.begin(), spec.tokens.end(), static_cast<int32_t>(1000 * i));
      spec.n_prompt = 256;
      spec.max_length = kLength;
      spec.client = std::string(1, static_cast<char>('a' + i % 7));
      ids.push_back(*scheduler->Add(spec));
    }
    ids.resize(static_cast<size_t>(n));
    while (!std::all_of(ids.begin(), ids.end(),
                        [this](SequenceId id) { return scheduler->Get(id).to_compute() == 0; })) {
      Step();
    }
  }

  int64_t Step() {
    StepPlan plan = scheduler->Decide();
    scheduler->Apply(plan);
    scheduler->Commit(plan, 0.01);
    return plan.decode_tokens;
  }

  KvLayout layout;
  std::unique_ptr<NoMemory> memory;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<SequenceId> ids;
};

void DecodeSteps(benchmark::State& state, int64_t n_waiting, bool windows, double itl_target) {
  const int64_t n = state.range(0);
  auto load = std::make_unique<Load>(n, n_waiting, windows, itl_target);
  int64_t length = 256;
  for (auto _ : state) {
    if (++length == kLength) {
      state.PauseTiming();
      load = std::make_unique<Load>(n, n_waiting, windows, itl_target);
      length = 257;
      state.ResumeTiming();
    }
    for (const SequenceId id : load->ids) load->scheduler->Append(id, 7);
    if (load->Step() != n) state.SkipWithError("not every sequence got its row");
  }
  state.counters["us_per_sequence"] = benchmark::Counter(
      static_cast<double>(n) * 1e-6,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Full attention; layers with windows beside full ones; 1,000 requests in the queue.
void BM_Decode(benchmark::State& state) {
  DecodeSteps(state, 0, false, 0);
}
void BM_DecodeWindows(benchmark::State& state) {
  DecodeSteps(state, 0, true, 0);
}
void BM_DecodeQueue(benchmark::State& state) {
  DecodeSteps(state, 1000, false, 0.05);
}
BENCHMARK(BM_Decode)->Arg(1)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_DecodeWindows)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_DecodeQueue)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lucid

BENCHMARK_MAIN();
