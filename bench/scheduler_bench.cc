// What scheduling costs in a step of decoding streams: the choice, the blocks, the records and the
// new tokens, without any model. The target is 100 us at 64 sequences.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/kv_layout.h"
#include "kv/null_kv_memory_test_util.h"
#include "sched/scheduler.h"

namespace lucid {
namespace {

constexpr int64_t kLength = 15000;  // tokens that a sequence may come to

struct Kind {
  int64_t n_waiting = 0;  // more sequences, which find no place
  bool windows = false;
  bool places = false;  // the first of them lacks blocks: each step looks at the whole queue
  double itl_target_seconds = 0;
};

// `n` sequences with prompts of 256 tokens, computed, and those that wait.
struct Load {
  Load(int64_t n, const Kind& kind) {
    std::vector<KvSpec> layers(6, {.heads = 2, .k_dim = 64, .v_dim = 64});
    for (size_t i = 1; kind.windows && i < layers.size(); ++i) layers[i].window = 512;
    layout = *KvLayout::Make(layers, {});
    memory = std::make_unique<NullKvMemory>(layout);
    KvCacheOptions cache_options;
    cache_options.n_blocks = layout.BlocksForAll(n, kLength, 512);
    cache = *KvCache::Create(layout, cache_options, *memory);
    SchedulerOptions options;
    options.max_step_tokens = std::max<int64_t>(512, n);
    options.max_sequences = kind.places ? n + 1 : n;
    options.max_waiting = std::max<int64_t>(n, kind.n_waiting);
    options.itl_target_seconds = kind.itl_target_seconds;
    scheduler = std::make_unique<Scheduler>(options, *cache);
    for (int64_t i = 0; i < n; ++i) ids.push_back(Add(256, kLength));
    while (!std::all_of(ids.begin(), ids.end(),
                        [this](SequenceId id) { return scheduler->Get(id).to_compute() == 0; })) {
      Step();
    }
    for (int64_t i = 0; i < kind.n_waiting; ++i) {
      const int64_t n_prompt = i == 0 && kind.places ? n * kLength - 1 : 256;
      Add(n_prompt, n_prompt + 1);
    }
  }

  SequenceId Add(int64_t n_prompt, int64_t max_length) {
    SequenceSpec spec;
    spec.tokens.resize(static_cast<size_t>(n_prompt));
    std::iota(spec.tokens.begin(), spec.tokens.end(), 1000 * n_added);
    spec.n_prompt = n_prompt;
    spec.max_length = max_length;
    spec.client = std::string(1, static_cast<char>('a' + n_added++ % 7));
    return *scheduler->Add(spec);
  }

  int64_t Step() {
    StepPlan plan = scheduler->Decide();
    scheduler->Apply(plan);
    scheduler->Commit(plan, 0.01);
    return plan.decode_tokens;
  }

  KvLayout layout;
  std::unique_ptr<NullKvMemory> memory;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<SequenceId> ids;
  int32_t n_added = 0;
};

void DecodeSteps(benchmark::State& state, const Kind& kind) {
  const int64_t n = state.range(0);
  auto load = std::make_unique<Load>(n, kind);
  int64_t length = 256;
  for (auto _ : state) {
    if (++length == kLength) {
      state.PauseTiming();
      load = std::make_unique<Load>(n, kind);
      length = 257;
      state.ResumeTiming();
    }
    for (const SequenceId id : load->ids) load->scheduler->Append(id, 7);
    if (load->Step() != n) state.SkipWithError("not every sequence got its row");
  }
}

void BM_Decode(benchmark::State& state) {
  DecodeSteps(state, {});
}
void BM_DecodeWindows(benchmark::State& state) {
  DecodeSteps(state, {.windows = true});
}
void BM_DecodeFull(benchmark::State& state) {
  DecodeSteps(state, {.n_waiting = 1000, .itl_target_seconds = 0.05});
}
void BM_DecodeFullPools(benchmark::State& state) {
  DecodeSteps(state, {.n_waiting = 1000, .places = true});
}
BENCHMARK(BM_Decode)->Arg(1)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_DecodeWindows)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_DecodeFull)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_DecodeFullPools)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lucid

BENCHMARK_MAIN();
