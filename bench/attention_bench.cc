// Times attention over the paged cache: decoding by cache type and block size, sequences that share
// a prefix, and a prompt chunk. One thread, the kernels that `--isa auto` picks, the heads of
// Qwen2.5-7B (28 query heads on 4 KV heads of 128).
//
//   cmake --preset release -DLUCID_BUILD_BENCHMARKS=ON && cmake --build build/release
//   build/release/bench/attention_bench --benchmark_filter=Decode
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "tensor/kv_type.h"

namespace lucid {
namespace {

constexpr int32_t kHeads = 28, kKvHeads = 4, kDim = 128;
constexpr int32_t kContext = 2048;
// A step goes through layer after layer: by the time a layer's turn comes, its cache has left the
// first levels of the processor's.
constexpr int32_t kLayers = 8;

// Sequences of kContext positions in a cache of kLayers layers; a batch over them.
class Bench {
 public:
  // `shared`: the sequences' tables lead to the same blocks for all full blocks of the context.
  Bench(KvType type, int32_t block_size, int32_t sequences, bool shared, int32_t first,
        int32_t count)
      : type_(type), block_size_(block_size) {
    FillTables(sequences, shared);
    for (int32_t s = 0; s < sequences; ++s) {
      for (int32_t i = 0; i < count; ++i) {
        sequence_.push_back(s);
        positions_.push_back(first + i);
      }
    }
    step_.n_tokens = static_cast<int32_t>(positions_.size());
    step_.n_sequences = sequences;
    step_.positions = positions_.data();
    step_.sequence = sequence_.data();
    step_.block_tables = tables_.data();
    step_.block_table_stride = stride_;
    FillPages();
    q_.assign(positions_.size() * kHeads * kDim, 0.0f);
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (float& x : q_) x = normal(rng);
    y_.resize(q_.size());
    const auto tables = SelectTables("auto").value();
    const AttentionArgs args = Args(0);
    kernel_ = ChooseKernel(tables, KernelOp::kAttention, &args).kernel;
    const size_t bytes = kernel_->scratch(&args, step_.n_tokens);
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  }

  void Run(benchmark::State& state) {
    int32_t layer = 0;
    for (auto _ : state) {
      const AttentionArgs args = Args(layer++ % kLayers);
      kernel_->fn(&args, step_, {0, 1, scratch_.get()});
      benchmark::DoNotOptimize(y_.data());
    }
    state.SetItemsProcessed(state.iterations() * step_.n_tokens);
  }

 private:
  bool kivi() const { return !IsRowType(type_); }
  int64_t PageBytes(KvType type) const {
    return kKvHeads * (KvHeadBytes(type, true, kDim, block_size_) +
                       KvHeadBytes(type, false, kDim, block_size_));
  }

  void FillTables(int32_t sequences, bool shared) {
    stride_ = kContext / block_size_ + 2;
    for (int32_t s = 0; s < sequences; ++s) {
      for (int32_t b = 0; b < stride_; ++b) {
        const bool from_first = shared && s > 0 && b < kContext / block_size_;
        tables_.push_back(from_first ? tables_[static_cast<size_t>(b)] : n_blocks_++);
      }
    }
  }

  // Random rows, the same for every layer.
  void FillPages() {
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    std::vector<float> rows(static_cast<size_t>(block_size_) * kDim);
    const auto fill = [&](KvType type, std::vector<std::byte>& bytes) {
      bytes.resize(static_cast<size_t>(kLayers * n_blocks_ * PageBytes(type)));
      const int64_t heads = int64_t{kLayers} * n_blocks_ * kKvHeads;
      const int64_t k_bytes = KvHeadBytes(type, true, kDim, block_size_);
      const int64_t v_bytes = KvHeadBytes(type, false, kDim, block_size_);
      std::vector<std::byte> k(static_cast<size_t>(k_bytes)), v(static_cast<size_t>(v_bytes));
      for (float& x : rows) x = normal(rng);
      for (int64_t i = 0; i < block_size_; ++i) {
        if (IsRowType(type)) {
          EncodeKvRow(type, &rows[static_cast<size_t>(i * kDim)],
                      k.data() + i * KvRowBytes(type, kDim), kDim);
        }
        EncodeKvRow(type, &rows[static_cast<size_t>(i * kDim)],
                    v.data() + i * KvRowBytes(type, kDim), kDim);
      }
      if (!IsRowType(type)) EncodeKiviKeys(rows.data(), kDim, k.data(), kDim, block_size_);
      for (int64_t h = 0; h < heads; ++h) {
        std::byte* page = bytes.data() + h / kKvHeads * PageBytes(type);
        std::copy(k.begin(), k.end(), page + h % kKvHeads * k_bytes);
        std::copy(v.begin(), v.end(), page + kKvHeads * k_bytes + h % kKvHeads * v_bytes);
      }
    };
    fill(type_, pages_);
    if (kivi()) fill(KvType::kF16, recent_);
  }

  KvPages PagesOf(std::vector<std::byte>& bytes, KvType type, int32_t layer) {
    return {bytes.data() + layer * n_blocks_ * PageBytes(type),
            PageBytes(type),
            kKvHeads * KvHeadBytes(type, true, kDim, block_size_),
            type,
            type,
            0};
  }

  AttentionArgs Args(int32_t layer) {
    AttentionArgs args;
    args.kv.pages = PagesOf(pages_, type_, layer);
    if (kivi()) args.kv.recent = PagesOf(recent_, KvType::kF16, layer);
    args.kv.n_heads = kKvHeads;
    args.kv.k_dim = kDim;
    args.kv.v_dim = kDim;
    args.kv.block_size = block_size_;
    args.q = q_.data();
    args.y = y_.data();
    args.n_heads = kHeads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(kDim));
    return args;
  }

  KvType type_;
  int32_t block_size_;
  int32_t stride_ = 0;
  int32_t n_blocks_ = 0;
  std::vector<std::byte> pages_, recent_;
  std::vector<int32_t> tables_, sequence_, positions_;
  std::vector<float> q_, y_;
  StepView step_;
  const Kernel* kernel_ = nullptr;
  std::unique_ptr<std::byte, decltype(&std::free)> scratch_{nullptr, &std::free};
};

void Register() {
  const auto add = [](const std::string& name, auto make) {
    benchmark::RegisterBenchmark(name.c_str(), [make](benchmark::State& state) {
      make().Run(state);
    })->Unit(benchmark::kMicrosecond);
  };
  for (const KvType type : AllKvTypes()) {
    const std::string name(Name(type));
    for (const int32_t block : {16, 32, 64}) {
      add("Decode/" + name + "/block:" + std::to_string(block),
          [=] { return Bench(type, block, 1, false, kContext, 1); });
    }
    for (const bool shared : {false, true}) {
      add("Prefix16/" + name + (shared ? "/shared" : "/apart"),
          [=] { return Bench(type, 32, 16, shared, kContext, 1); });
    }
    add("Prompt128/" + name, [=] { return Bench(type, 32, 1, false, kContext - 128, 128); });
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
