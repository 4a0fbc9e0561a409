// Times products with packed weights on one thread: rounding of the activations, then the strips,
// by type, shape and number of rows; the kernels that LUCID_ISA, or auto, picks. Counters:
// multiply-adds a second, and for few rows bytes of weights a second.
//
//   build/release/bench/packed_bench --benchmark_filter='Q4_K/3584/.*'
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/env.h"
#include "kernels/packed.h"
#include "kernels/table.h"

namespace lucid {
namespace {

struct Work {
  DType type;
  int64_t n_in;
  int64_t n_out;
  int32_t rows;
  Phase phase;
  float error_budget;
};

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
Memory Allocate(size_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t size = (bytes + kHugePage) / kHugePage * kHugePage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)), &std::free);
  madvise(memory.get(), size, MADV_HUGEPAGE);
  std::fill_n(memory.get(), size, std::byte{0});
  return memory;
}

// Activations of a normal distribution, and an outlier in every 16th block, always in the same
// columns: about as many as real models have.
std::vector<float> Activations(int64_t rows, int64_t n_in) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * n_in));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(rng) * (static_cast<int64_t>(i) % n_in % 512 == 100 ? 12.0f : 1.0f);
  }
  return x;
}

// The bytes of the weights do not matter for speed as long as their scales are numbers.
Memory PackedMatrix(const Work& work) {
  Tensor w;
  w.dtype = work.type;
  w.rank = 2;
  w.shape = {work.n_out, work.n_in};
  Memory packed = Allocate(static_cast<size_t>(PackedBytes(w)));
  std::fill_n(packed.get(), PackedBytes(w), std::byte{0x35});
  return packed;
}

void Packed(benchmark::State& state, Work work, bool rounding) {
  const Memory packed = PackedMatrix(work);
  const std::vector<float> x = Activations(work.rows, work.n_in);
  std::vector<float> y(static_cast<size_t>(work.rows * work.n_out));
  LinearArgs args;
  args.w.dtype = work.type;
  args.w.rank = 2;
  args.w.shape = {work.n_out, work.n_in};
  args.packed = packed.get();
  args.x = x.data();
  args.y = y.data();
  args.error_budget = work.error_budget;
  const auto tables = SelectTables(Env("LUCID_ISA").value_or("")).value();
  const KernelChoice choice = ChooseKernel(tables, KernelOp::kLinear, &args);
  const std::vector<Phase> phases(static_cast<size_t>(work.rows), work.phase);
  StepView step;
  step.n_tokens = work.rows;
  step.phases = phases.data();
  const Memory scratch = Allocate(choice.kernel->scratch(&args, work.rows));
  const Memory shared = Allocate(choice.kernel->shared(&args, work.rows));
  const ThreadSlot thread = {0, 1, scratch.get(), shared.get()};
  choice.kernel->prepare(&args, step, thread);
  for (auto _ : state) {
    if (rounding) {
      choice.kernel->prepare(&args, step, thread);
    } else {
      choice.kernel->fn(&args, step, thread);
    }
  }
  state.SetLabel(std::string(choice.kernel->name));
  using benchmark::Counter;
  const auto steps = static_cast<double>(state.iterations());
  if (rounding) {
    state.counters["values/s"] =
        Counter(steps * static_cast<double>(work.rows * work.n_in), Counter::kIsRate);
    return;
  }
  state.counters["MAC/s"] =
      Counter(steps * static_cast<double>(work.rows * work.n_in * work.n_out), Counter::kIsRate);
  state.counters["weight B/s"] =
      Counter(steps * static_cast<double>(PackedBytes(args.w)), Counter::kIsRate);
}

void Register() {
  struct Shape {
    int64_t n_in, n_out;
  };
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K,
                           DType::kQ6_K, DType::kIQ4_XS}) {
    for (const Shape shape :
         {Shape{896, 4864}, {4864, 896}, {3584, 3584}, {18944, 3584}, {3584, 75776}}) {
      if (shape.n_in % Info(type).block_elems != 0) continue;
      for (const int32_t rows : {1, 8, 32, 64, 512}) {
        struct Kind {
          const char* name;
          Phase phase;
          float error_budget;
        };
        for (const Kind kind : {Kind{"prompt", Phase::kPrompt, kDefaultErrorBudget},
                                Kind{"reply", Phase::kGenerated, kDefaultErrorBudget},
                                Kind{"fast", Phase::kPrompt, kAnyError}}) {
          const Work work = {type, shape.n_in, shape.n_out, rows, kind.phase, kind.error_budget};
          const std::string name =
              fmt::format("{}/{}/{}/{}/{}", Name(type), shape.n_in, shape.n_out, rows, kind.name);
          benchmark::RegisterBenchmark(
              name.c_str(), [=](benchmark::State& state) { Packed(state, work, false); });
          if (rows == 512 && type == DType::kQ4_0) {
            benchmark::RegisterBenchmark(("round/" + name).c_str(), [=](benchmark::State& state) {
              Packed(state, work, true);
            });
          }
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
}
