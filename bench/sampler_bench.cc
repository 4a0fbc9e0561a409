// Times the choice of one token from a row of 151,936 logits, on one thread: the default chain with
// and without penalties, greedy, the filters alone, and log-probabilities.
//
//   build/release/bench/sampler_bench [--benchmark_filter=...]
//
// The logits look like a model's: a normal body and a few hundred likely tokens above it. The body
// has 0.4 % of the probability; with `Flat` it has 7 %, so that top_p keeps thousands of tokens.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "bench_util.h"
#include "decode/sampler.h"

namespace lucid {
namespace {

constexpr size_t kVocabulary = 151936;
constexpr int kRows = 8;  // 5 MB: a step's rows have not all stayed in the nearest cache

std::vector<std::vector<float>> Rows(float spread) {
  std::mt19937 random(1);
  std::normal_distribution<float> body;
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocabulary));
  for (auto& row : rows) {
    for (float& x : row) x = spread * body(random);
    for (int i = 0; i < 300; ++i) {
      const float rank = static_cast<float>(i + 1);
      row[random() % kVocabulary] = 18.0f - spread - 2.0f * std::log(rank) + body(random) / 2;
    }
  }
  return rows;
}

std::vector<int32_t> History(size_t n) {
  std::mt19937 random(2);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) {  // frequent tokens come again and again
    const double u = std::generate_canonical<double, 32>(random);
    token = static_cast<int32_t>(std::pow(static_cast<double>(kVocabulary), u)) - 1;
  }
  return tokens;
}

void Sample(benchmark::State& state, const SamplerParams& params, size_t n_history,
            float spread = 1.5f) {
  const auto rows = Rows(spread);
  const SamplerChain chain = Get(SamplerChain::Create(params));
  const auto prompt = History(n_history / 2), reply = History(n_history - n_history / 2);
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Get(chain.Sample(rows[position % kRows], prompt, reply, 0, position)));
    ++position;
  }
  state.SetLabel(chain.Describe());
}

SamplerParams Default() {
  return {};
}
SamplerParams Penalised() {
  SamplerParams params;
  params.repetition_penalty = 1.1f;
  return params;
}
SamplerParams Greedy() {
  SamplerParams params;
  params.temperature = 0;
  return params;
}
SamplerParams GreedyPenalised() {
  SamplerParams params = Penalised();
  params.temperature = 0;
  return params;
}
SamplerParams Nucleus() {
  SamplerParams params;
  params.top_k = 0;
  params.min_p = 0;
  return params;
}
SamplerParams MinP() {
  SamplerParams params;
  params.top_k = 0;
  params.top_p = 1;
  return params;
}
SamplerParams TemperatureOnly() {
  SamplerParams params = MinP();
  params.min_p = 0;
  return params;
}

SamplerParams TypicalP() {
  SamplerParams params = TemperatureOnly();
  params.typical_p = 0.9f;
  return params;
}
SamplerParams Raw() {
  SamplerParams params = TemperatureOnly();
  params.temperature = 1;
  return params;
}
// The order of Hugging Face's and OpenAI's parameters.
SamplerParams TemperatureFirst() {
  SamplerParams params = Nucleus();
  params.samplers = {"temperature", "top_p"};
  return params;
}

void Logprobs(benchmark::State& state) {
  const auto rows = Rows(1.5f);
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(RawLogprobs(rows[i++ % kRows], 17, 5));
}

BENCHMARK_CAPTURE(Sample, Default, Default(), 0);
BENCHMARK_CAPTURE(Sample, Default_Flat, Default(), 0, 2.0f);
BENCHMARK_CAPTURE(Sample, Penalised_512, Penalised(), 512);
BENCHMARK_CAPTURE(Sample, Penalised_16384, Penalised(), 16384);
BENCHMARK_CAPTURE(Sample, Greedy, Greedy(), 0);
BENCHMARK_CAPTURE(Sample, GreedyPenalised_512, GreedyPenalised(), 512);
BENCHMARK_CAPTURE(Sample, TopPWithoutTopK, Nucleus(), 0);
BENCHMARK_CAPTURE(Sample, TopPWithoutTopK_Flat, Nucleus(), 0, 2.0f);
BENCHMARK_CAPTURE(Sample, TemperatureFirst, TemperatureFirst(), 0);
BENCHMARK_CAPTURE(Sample, TemperatureFirst_Flat, TemperatureFirst(), 0, 2.0f);
BENCHMARK_CAPTURE(Sample, MinPWithoutTopK, MinP(), 0);
BENCHMARK_CAPTURE(Sample, MinPWithoutTopK_Flat, MinP(), 0, 2.0f);
BENCHMARK_CAPTURE(Sample, TemperatureOnly, TemperatureOnly(), 0);
BENCHMARK_CAPTURE(Sample, TemperatureOnly_Flat, TemperatureOnly(), 0, 2.0f);
BENCHMARK_CAPTURE(Sample, Raw, Raw(), 0);
BENCHMARK_CAPTURE(Sample, TypicalP, TypicalP(), 0);
BENCHMARK(Logprobs);

}  // namespace
}  // namespace lucid

BENCHMARK_MAIN();
