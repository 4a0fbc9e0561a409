// Times attention over the paged cache: decoding by cache type and block size, long contexts,
// sequences that share a prefix, and prompt chunks; the kernels that `--isa` of LUCID_ISA, or auto,
// picks. Counters: GB/s of keys and values that are read once, and multiply-adds a second.
//
//   cmake --preset release -DLUCID_BUILD_BENCHMARKS=ON && cmake --build build/release
//   build/release/bench/attention_bench --benchmark_filter=Decode
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/table.h"
#include "tensor/kv_type.h"

namespace lucid {
namespace {

// A step goes through layer after layer: by the time a layer's turn comes, its cache has left the
// first levels of the processor's.
constexpr int32_t kLayers = 8;

struct Shape {
  const char* name;
  int32_t heads, kv_heads, dim;
};
constexpr Shape kQwen7B = {"7B", 28, 4, 128};
constexpr Shape kQwen05B = {"0.5B", 14, 2, 64};

struct Work {
  Shape shape = kQwen7B;
  KvType type = KvType::kF16;
  int32_t block_size = 32;
  int32_t sequences = 1;
  bool shared = false;     // the sequences' tables lead to the same blocks for the whole context
  int32_t context = 2048;  // places before the step's tokens
  int32_t tokens = 1;      // of each sequence
  Phase phase = Phase::kGenerated;
  int threads = 1;
};

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
Memory Allocate(size_t bytes) {
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)),
                &std::free);
  std::fill_n(memory.get(), bytes, std::byte{0});
  return memory;
}

// As the cache of a model has them.
void AskForHugePages(std::vector<std::byte>& reserved) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin =
      (reinterpret_cast<uintptr_t>(reserved.data()) + kPage - 1) / kPage * kPage;
  if (reserved.capacity() > 2 * kPage) {
    ::madvise(reinterpret_cast<void*>(begin), reserved.capacity() - 2 * kPage, MADV_HUGEPAGE);
  }
}

// Sequences in a cache of kLayers layers, and a batch over them.
class Bench {
 public:
  explicit Bench(const Work& work) : w_(work), pool_(work.threads) {
    FillTables();
    for (int32_t s = 0; s < w_.sequences; ++s) {
      for (int32_t i = 0; i < w_.tokens; ++i) {
        sequence_.push_back(s);
        positions_.push_back(w_.context + i);
      }
    }
    phases_.assign(positions_.size(), w_.phase);
    step_.n_tokens = static_cast<int32_t>(positions_.size());
    step_.n_sequences = w_.sequences;
    step_.positions = positions_.data();
    step_.sequence = sequence_.data();
    step_.phases = phases_.data();
    step_.block_tables = tables_.data();
    step_.block_table_stride = stride_;
    FillPages();
    q_.assign(positions_.size() * static_cast<size_t>(w_.shape.heads * w_.shape.dim), 0.0f);
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (float& x : q_) x = normal(rng);
    y_.resize(q_.size());
    const char* isa = std::getenv("LUCID_ISA");
    const auto tables = SelectTables(isa != nullptr ? isa : "auto").value();
    const AttentionArgs args = Args(0);
    kernel_ = ChooseKernel(tables, KernelOp::kAttention, &args).kernel;
    for (int i = 0; i < w_.threads; ++i) {
      scratch_.push_back(Allocate(kernel_->scratch(&args, step_.n_tokens)));
    }
    shared_ = Allocate(kernel_->shared != nullptr ? kernel_->shared(&args, step_.n_tokens) : 0);
  }

  void Run(benchmark::State& state) {
    int32_t layer = 0;
    for (auto _ : state) {
      const AttentionArgs args = Args(layer++ % kLayers);
      pool_.Run([&](int thread) {
        kernel_->fn(
            &args, step_,
            {thread, w_.threads, scratch_[static_cast<size_t>(thread)].get(), shared_.get()});
      });
      benchmark::DoNotOptimize(y_.data());
    }
    state.SetLabel(kernel_->name);
    const auto runs = static_cast<double>(state.iterations());
    const int64_t sequences = w_.shared ? 1 : w_.sequences;
    const double places = w_.context + w_.tokens;
    const double bytes =
        2.0 *
        static_cast<double>(sequences * w_.shape.kv_heads * KvRowBytes(w_.type, w_.shape.dim)) *
        places;
    const double seen = w_.tokens * (w_.context + 0.5 * (w_.tokens + 1));  // keys of a sequence
    const double macs = 2.0 * w_.sequences * w_.shape.heads * w_.shape.dim * seen;
    state.counters["GB/s"] = benchmark::Counter(1e-9 * bytes * runs, benchmark::Counter::kIsRate);
    state.counters["GMAC/s"] = benchmark::Counter(1e-9 * macs * runs, benchmark::Counter::kIsRate);
  }

 private:
  bool kivi() const { return !IsRowType(w_.type); }
  int64_t HeadBytes(KvType type, bool keys) const {
    return KvHeadBytes(type, keys, w_.shape.dim, w_.block_size);
  }
  int64_t PageBytes(KvType type) const {
    return w_.shape.kv_heads * (HeadBytes(type, true) + HeadBytes(type, false));
  }

  void FillTables() {
    const int32_t full = w_.context / w_.block_size;
    stride_ = (w_.context + w_.tokens) / w_.block_size + 1;
    for (int32_t s = 0; s < w_.sequences; ++s) {
      for (int32_t b = 0; b < stride_; ++b) {
        const bool from_first = w_.shared && s > 0 && b < full;
        tables_.push_back(from_first ? tables_[static_cast<size_t>(b)] : n_blocks_++);
      }
    }
  }

  // Random rows, the same for every layer.
  void FillPages() {
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    const int32_t dim = w_.shape.dim;
    std::vector<float> rows(static_cast<size_t>(w_.block_size * dim));
    const auto fill = [&](KvType type, std::vector<std::byte>& bytes) {
      bytes.reserve(static_cast<size_t>(kLayers * n_blocks_ * PageBytes(type)));
      AskForHugePages(bytes);
      bytes.resize(static_cast<size_t>(kLayers * n_blocks_ * PageBytes(type)));
      const int64_t heads = int64_t{kLayers} * n_blocks_ * w_.shape.kv_heads;
      const int64_t k_bytes = HeadBytes(type, true);
      const int64_t v_bytes = HeadBytes(type, false);
      std::vector<std::byte> k(static_cast<size_t>(k_bytes)), v(static_cast<size_t>(v_bytes));
      for (float& x : rows) x = normal(rng);
      for (int64_t i = 0; i < w_.block_size; ++i) {
        const float* row = &rows[static_cast<size_t>(i * dim)];
        if (IsRowType(type)) EncodeKvRow(type, row, k.data() + i * KvRowBytes(type, dim), dim);
        EncodeKvRow(type, row, v.data() + i * KvRowBytes(type, dim), dim);
      }
      if (!IsRowType(type)) EncodeKiviKeys(rows.data(), dim, k.data(), dim, w_.block_size);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t kv_heads = w_.shape.kv_heads;
        std::byte* page = bytes.data() + h / kv_heads * PageBytes(type);
        std::copy(k.begin(), k.end(), page + h % kv_heads * k_bytes);
        std::copy(v.begin(), v.end(), page + kv_heads * k_bytes + h % kv_heads * v_bytes);
      }
    };
    fill(w_.type, pages_);
    if (kivi()) fill(KvType::kF16, recent_);
  }

  KvPages PagesOf(std::vector<std::byte>& bytes, KvType type, int32_t layer) {
    return {bytes.data() + layer * n_blocks_ * PageBytes(type),
            PageBytes(type),
            w_.shape.kv_heads * HeadBytes(type, true),
            type,
            type,
            0};
  }

  AttentionArgs Args(int32_t layer) {
    AttentionArgs args;
    args.kv.pages = PagesOf(pages_, w_.type, layer);
    if (kivi()) args.kv.recent = PagesOf(recent_, KvType::kF16, layer);
    args.kv.n_heads = w_.shape.kv_heads;
    args.kv.k_dim = w_.shape.dim;
    args.kv.v_dim = w_.shape.dim;
    args.kv.block_size = w_.block_size;
    args.q = q_.data();
    args.y = y_.data();
    args.n_heads = w_.shape.heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(w_.shape.dim));
    return args;
  }

  const Work w_;
  ThreadPool pool_;
  int32_t stride_ = 0;
  int32_t n_blocks_ = 0;
  std::vector<std::byte> pages_, recent_;
  std::vector<int32_t> tables_, sequence_, positions_;
  std::vector<Phase> phases_;
  std::vector<float> q_, y_;
  StepView step_;
  const Kernel* kernel_ = nullptr;
  std::vector<Memory> scratch_;
  Memory shared_{nullptr, &std::free};
};

void Add(const std::string& name, const Work& work) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [work](benchmark::State& state) { Bench(work).Run(state); })
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

void Register() {
  for (const KvType type : AllKvTypes()) {
    const std::string name(Name(type));
    for (const int32_t block : {16, 32, 64}) {
      Add("Decode/" + name + "/block:" + std::to_string(block),
          {.type = type, .block_size = block});
    }
    for (const bool shared : {false, true}) {
      Add("Prefix16/" + name + (shared ? "/shared" : "/apart"),
          {.type = type, .sequences = 16, .shared = shared});
    }
    for (const Phase phase : {Phase::kPrompt, Phase::kGenerated}) {
      Add("Prompt128/" + name + (phase == Phase::kPrompt ? "" : "/exact"),
          {.type = type, .context = 2048 - 128, .tokens = 128, .phase = phase});
    }
  }
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    for (const Shape& shape : {kQwen05B, kQwen7B}) {
      for (const int threads : {1, 2}) {
        const std::string rest = std::string("/") + shape.name + "/" + std::string(Name(type)) +
                                 "/threads:" + std::to_string(threads);
        Add("Short" + rest, {.shape = shape, .type = type, .context = 512, .threads = threads});
        Add("Long" + rest, {.shape = shape, .type = type, .context = 16384, .threads = threads});
        for (const Phase phase : {Phase::kPrompt, Phase::kGenerated}) {
          Add("Prompt512" + rest + (phase == Phase::kPrompt ? "" : "/exact"), {.shape = shape,
                                                                               .type = type,
                                                                               .context = 4096,
                                                                               .tokens = 512,
                                                                               .phase = phase,
                                                                               .threads = threads});
        }
      }
    }
  }
}

}  // namespace
}  // namespace lucid

int main(int argc, char** argv) {
  lucid::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
