// Times the experts of a layer on one thread beside a dense layer of the same active size: both
// gated products and the one after them, by type, shape and number of tokens; the kernels that
// LUCID_ISA, or auto, picks. Where rows are grouped by expert, many tokens come near the dense
// layer's multiply-adds a second. Tokens choose their experts at random.
//
//   build/release/bench/experts_bench --benchmark_filter='Q4_K/.*'
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/env.h"
#include "kernels/packed.h"
#include "kernels/table.h"

namespace lucid {
namespace {

// Sizes of a layer: OLMoE-1B-7B, Qwen3-30B-A3B, Mixtral 8x7B.
struct Shape {
  const char* name;
  int64_t dim, inner, experts, used;
};
constexpr Shape kShapes[] = {
    {"olmoe", 2048, 1024, 64, 8}, {"qwen3", 2048, 768, 128, 8}, {"mixtral", 4096, 14336, 8, 2}};

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;
Memory Allocate(size_t bytes, std::byte value = std::byte{0}) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t size = (bytes + kHugePage) / kHugePage * kHugePage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)), &std::free);
  std::fill_n(memory.get(), size, value);
  return memory;
}

Tensor Matrix(DType type, int64_t n_out, int64_t n_in) {
  Tensor w;
  w.dtype = type;
  w.rank = 2;
  w.shape = {n_out, n_in};
  return w;
}

// The kernel of an op with all that it needs.
class Bound {
 public:
  template <typename Args>
  Bound(KernelOp op, const Args& args, const StepView& step)
      : kernel_(*ChooseKernel(Tables(), op, &args).kernel),
        args_(&args),
        step_(step),
        scratch_(Allocate(kernel_.scratch == nullptr ? 1 : kernel_.scratch(&args, step.n_tokens))),
        shared_(Allocate(kernel_.shared == nullptr ? 1 : kernel_.shared(&args, step.n_tokens))) {}

  void Run() const {
    const ThreadSlot thread = {0, 1, scratch_.get(), shared_.get()};
    if (kernel_.prepare != nullptr) kernel_.prepare(args_, step_, thread);
    kernel_.fn(args_, step_, thread);
  }
  std::string name() const { return kernel_.name; }

 private:
  static std::vector<const KernelTable*> Tables() {
    return SelectTables(Env("LUCID_ISA").value_or("")).value();
  }
  const Kernel& kernel_;
  const void* args_;
  const StepView& step_;
  Memory scratch_;
  Memory shared_;
};

std::vector<float> Activations(int64_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<float> Choices(const Shape& s, int64_t tokens) {
  std::mt19937 random(2);
  std::vector<int> all(static_cast<size_t>(s.experts));
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> chosen;
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    chosen.insert(chosen.end(), all.begin(), all.begin() + s.used);
  }
  return chosen;
}

void Report(benchmark::State& state, const Shape& s, int64_t tokens, const std::string& label) {
  using benchmark::Counter;
  const auto steps = static_cast<double>(state.iterations());
  const auto macs = static_cast<double>(3 * s.dim * s.inner * s.used * tokens);
  state.SetLabel(label);
  state.counters["MAC/s"] = Counter(steps * macs, Counter::kIsRate);
  state.counters["tokens/s"] = Counter(steps * static_cast<double>(tokens), Counter::kIsRate);
}

void Experts(benchmark::State& state, DType type, const Shape& s, int32_t tokens) {
  const Tensor up = Matrix(type, s.inner, s.dim);
  const Tensor down = Matrix(type, s.dim, s.inner);
  // The bytes of the weights do not matter for speed as long as their scales are numbers.
  const auto filled = [&s](const Tensor& w) {
    return Allocate(static_cast<size_t>(s.experts * PackedBytes(w)), std::byte{0x35});
  };
  const Memory gate_weights = filled(up), up_weights = filled(up), down_weights = filled(down);
  const std::vector<const std::byte*> nowhere(static_cast<size_t>(s.experts));
  const auto stack = [&](const Tensor& w, const Memory& packed) {
    return ExpertMatrix{.w = w,
                        .n_experts = s.experts,
                        .data = nowhere.data(),
                        .packed = packed.get(),
                        .packed_bytes = PackedBytes(w)};
  };
  const std::vector<float> x = Activations(tokens * s.dim);
  const std::vector<float> chosen = Choices(s, tokens);
  std::vector<float> h(static_cast<size_t>(tokens * s.used * s.inner));
  std::vector<float> y(static_cast<size_t>(tokens * s.used * s.dim));
  StepView step;
  step.n_tokens = tokens;
  const ExpertGluArgs glu = {.gate = stack(up, gate_weights),
                             .up = stack(up, up_weights),
                             .x = x.data(),
                             .experts = chosen.data(),
                             .y = h.data(),
                             .n_used = s.used,
                             .glu = {}};
  const ExpertLinearArgs linear = {.w = stack(down, down_weights),
                                   .x = h.data(),
                                   .x_stride = s.inner,
                                   .experts = chosen.data(),
                                   .y = y.data(),
                                   .n_used = s.used};
  const Bound first(KernelOp::kExpertGlu, glu, step);
  const Bound second(KernelOp::kExpertLinear, linear, step);
  for (auto _ : state) {
    first.Run();
    second.Run();
  }
  Report(state, s, tokens, first.name());
}

void Dense(benchmark::State& state, DType type, const Shape& s, int32_t tokens) {
  const int64_t inner = s.inner * s.used;
  const Tensor up = Matrix(type, inner, s.dim);
  const Tensor down = Matrix(type, s.dim, inner);
  const auto filled = [](const Tensor& w) {
    return Allocate(static_cast<size_t>(PackedBytes(w)), std::byte{0x35});
  };
  const Memory gate_weights = filled(up), up_weights = filled(up), down_weights = filled(down);
  const std::vector<float> x = Activations(tokens * s.dim);
  std::vector<float> h(static_cast<size_t>(tokens * inner));
  std::vector<float> y(static_cast<size_t>(tokens * s.dim));
  StepView step;
  step.n_tokens = tokens;
  const std::vector<Phase> phases(static_cast<size_t>(tokens), Phase::kPrompt);
  step.phases = phases.data();
  GluLinearArgs glu;
  glu.gate = {.w = up, .x = x.data(), .packed = gate_weights.get()};
  glu.up = {.w = up, .x = x.data(), .packed = up_weights.get()};
  glu.y = h.data();
  const LinearArgs linear = {.w = down, .x = h.data(), .y = y.data(), .packed = down_weights.get()};
  const Bound first(KernelOp::kGluLinear, glu, step);
  const Bound second(KernelOp::kLinear, linear, step);
  for (auto _ : state) {
    first.Run();
    second.Run();
  }
  Report(state, s, tokens, first.name());
}

void Register() {
  for (const DType type : {DType::kQ4_K, DType::kQ8_0, DType::kMXFP4, DType::kBF16}) {
    for (const Shape& shape : kShapes) {
      for (const int32_t tokens : {1, 8, 64, 512, 2048}) {
        const std::string name = fmt::format("{}/{}/{}", Name(type), shape.name, tokens);
        benchmark::RegisterBenchmark((name + "/experts").c_str(), [=](benchmark::State& state) {
          Experts(state, type, shape, tokens);
        });
        benchmark::RegisterBenchmark((name + "/dense").c_str(), [=](benchmark::State& state) {
          Dense(state, type, shape, tokens);
        });
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
