// What serving promises, measured on a model: numbers for docs/serving.md.
//
//   serving itl      -m MODEL [--streams 8] [--prompt 8192] [--chunk N | --itl-target-ms T]
//       a long prompt arrives amid decoding streams: gaps between their tokens
//   serving capacity -m MODEL [--kv-memory BYTES] [--sequences 256] [--mean 600]
//       sequences of mixed length at once: how many run, what is wasted
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <random>

#include "bench_util.h"
#include "engine/engine.h"

namespace lucid {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

struct Flags {
  std::string model;
  int threads = 0;
  int streams = 8;
  int64_t prompt = 8192, chunk = 0;
  double itl_target_ms = 0;
  int64_t kv_memory = int64_t{2} << 30, sequences = 256, mean = 600, reply = 96;
};

std::vector<TokenId> RandomPrompt(const Engine& engine, int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto vocab =
      static_cast<uint32_t>(std::min<int64_t>(engine.model().config.vocab_size, 10000));
  std::vector<TokenId> ids(static_cast<size_t>(n));
  for (TokenId& id : ids) id = static_cast<TokenId>(rng() % vocab);
  return ids;
}

Request Greedy(std::vector<TokenId> prompt, int64_t n) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = n;
  request.ignore_eos = true;
  return request;
}

double Percentile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<size_t>(q * static_cast<double>(values.size())))];
}

void RunItl(const Flags& flags) {
  EngineConfig config;
  config.model = flags.model;
  config.n_threads = flags.threads;
  config.n_parallel = flags.streams + 1;
  config.context = flags.prompt + 1024;
  config.chunk = flags.chunk;
  config.itl_target_ms = flags.itl_target_ms;
  config.prefix_sharing = false;
  const auto engine = Get(Engine::Load(config));
  std::vector<Stream> streams;
  for (int i = 0; i < flags.streams; ++i) {
    streams.push_back(
        Get(engine->Submit(Greedy(RandomPrompt(*engine, 64, static_cast<uint32_t>(i)), 900))));
  }
  std::vector<Clock::time_point> last(streams.size());
  std::vector<double> before, during;
  std::optional<Stream> late;
  Clock::time_point arrived;
  double ttft = 0;
  int64_t steps = 0, steps_during = 0;
  // 100 quiet steps (the cost model learns from them), then the long prompt, until its first token.
  while (ttft == 0 && engine->Step()) {
    const Clock::time_point now = Clock::now();
    for (size_t i = 0; i < streams.size(); ++i) {
      while (streams[i].TryNext()) {
        if (last[i] != Clock::time_point{}) {
          (late ? during : before).push_back(Milliseconds(now - last[i]));
        }
        last[i] = now;
      }
    }
    ++steps;
    if (late) ++steps_during;
    if (late && late->TryNext()) ttft = Milliseconds(now - arrived) / 1e3;
    if (!late && steps == 100) {
      late = Get(engine->Submit(Greedy(RandomPrompt(*engine, flags.prompt, 99), 1)));
      arrived = now;
    }
  }
  fmt::print(
      "{} streams, prompt {}, {}: ITL before p50 {:.1f} ms; during the prefill p50 {:.1f} p99 "
      "{:.1f} "
      "max {:.1f} ms; its TTFT {:.2f} s in {} steps ({:.0f} tokens a step)\n",
      flags.streams, flags.prompt,
      flags.itl_target_ms > 0 ? fmt::format("target {:.0f} ms", flags.itl_target_ms)
                              : fmt::format("chunk {}", flags.chunk),
      Percentile(before, 0.5), Percentile(during, 0.5), Percentile(during, 0.99),
      Percentile(during, 1.0), ttft, steps_during,
      static_cast<double>(flags.prompt) / static_cast<double>(std::max<int64_t>(steps_during, 1)));
  const EngineStats stats = engine->Stats();
  fmt::print("besides the model and sampling: {:.0f} us a step\n",
             1e6 * stats.scheduling_seconds /
                 static_cast<double>(std::max<int64_t>(stats.scheduler.steps, 1)));
}

void RunCapacity(const Flags& flags) {
  EngineConfig config;
  config.model = flags.model;
  config.n_threads = flags.threads;
  config.n_parallel = static_cast<int32_t>(flags.sequences);
  config.kv_memory = flags.kv_memory;
  config.batch = 4096;
  config.prefix_sharing = false;
  const auto engine = Get(Engine::Load(config));
  // Lengths spread evenly over 20 % to 180 % of the mean. The longest come first and the steps are
  // large: the last prompt is in before the first reply ends, so that all run together.
  std::vector<Stream> streams;
  std::mt19937 rng(1);
  int64_t tokens = 0;
  for (int64_t i = flags.sequences - 1; i >= 0; --i) {
    const int64_t length = flags.mean / 5 + (flags.mean * 8 / 5) * i / (flags.sequences - 1);
    tokens += length;
    const int64_t reply = std::min(flags.reply, length / 2);
    streams.push_back(Get(engine->Submit(
        Greedy(RandomPrompt(*engine, length - reply, static_cast<uint32_t>(rng())), reply))));
  }
  const Clock::time_point start = Clock::now();
  EngineStats most;
  int64_t together = 0;
  while (engine->Step()) {
    const EngineStats stats = engine->Stats();
    together = std::max<int64_t>(together, stats.scheduler.running);
    if (stats.cache.used_positions > most.cache.used_positions) most = stats;
  }
  const KvLayout& layout = engine->kv_layout();
  const int64_t whole = layout.BytesFor(engine->context());
  fmt::print(
      "{} sequences of {} tokens in all, cache {} bytes: at most {} ran together, {} preemptions; "
      "at the fullest {} bytes held, {} of {} places used (waste {:.2f} %, worst {} places of one "
      "sequence); contiguous caches of {} tokens: {}; ratio {:.1f}; {:.0f} s\n",
      flags.sequences, tokens, layout.Bytes(most.cache.total), together,
      engine->Stats().scheduler.preemptions_recompute, most.cache.held_bytes,
      most.cache.used_positions, most.cache.reserved_positions,
      100.0 * (1.0 - static_cast<double>(most.cache.used_positions) /
                         static_cast<double>(most.cache.reserved_positions)),
      most.cache.worst_waste, engine->context(), flags.kv_memory / whole,
      static_cast<double>(together) / std::max(1.0, static_cast<double>(flags.kv_memory / whole)),
      Milliseconds(Clock::now() - start) / 1e3);
}

int Main(int argc, char** argv) {
  CLI::App app("What serving promises, measured");
  app.require_subcommand(1);
  Flags flags;
  const auto add = [&](const char* name, const char* help, void (*run)(const Flags&)) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("-m,--model", flags.model)->required();
    command->add_option("-t,--threads", flags.threads);
    command->callback([&flags, run] { run(flags); });
    return command;
  };
  CLI::App* itl = add("itl", "a long prompt amid decoding streams", RunItl);
  itl->add_option("--streams", flags.streams)->check(CLI::Range(1, 256));
  itl->add_option("--prompt", flags.prompt)->check(CLI::Range(64, 1 << 20));
  itl->add_option("--chunk", flags.chunk);
  itl->add_option("--itl-target-ms", flags.itl_target_ms);
  CLI::App* capacity = add("capacity", "sequences of mixed length at once", RunCapacity);
  capacity->add_option("--kv-memory", flags.kv_memory);
  capacity->add_option("--sequences", flags.sequences)->check(CLI::Range(2, 4096));
  capacity->add_option("--mean", flags.mean)->check(CLI::Range(32, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  return 0;
}

}  // namespace
}  // namespace lucid

int main(int argc, char** argv) {
  return lucid::Main(argc, argv);
}
