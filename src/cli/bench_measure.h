// What lucid bench measures: steps of the engine's own loop, over random tokens.
//
// Sampling is off the clock, as in llama-bench: replies are forced, so no sampler runs. On the
// clock is everything else that a request costs: scheduling, packing the batch, the model, the
// output matrix for the rows that need it, handing out the tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace lucid::cli {

// Exactly one of n_prompt and n_gen is not 0.
struct BenchTest {
  int64_t n_prompt = 0;  // prompt tokens per sequence: "pp"
  int64_t n_gen = 0;     // generated tokens per sequence: "tg"
  int64_t n_depth = 0;   // tokens of each sequence that are in the cache before
  int32_t n_seqs = 1;    // sequences at once, each with tokens of its own
};

struct BenchSample {
  double seconds = 0;
  int64_t tokens = 0;  // computed in that time, all sequences together
  double rate() const { return static_cast<double>(tokens) / seconds; }
};

class BenchDriver {
 public:
  // The engine shares prefixes, and its cache holds every test's sequences.
  explicit BenchDriver(Engine& engine) : engine_(engine) {}

  // `repetitions` samples, after an untimed one if `warmup`. kCapacity if the cache lost the depth
  // or preempted a sequence, so that the figures would be of something else.
  Result<std::vector<BenchSample>> Measure(const BenchTest& test, int repetitions, bool warmup);

 private:
  Result<BenchSample> Prompt(const BenchTest& test);
  Result<BenchSample> Generate(const BenchTest& test);
  Status FillDepth(const BenchTest& test);
  std::vector<TokenId> DepthTokens(int64_t n, int32_t sequence) const;
  void AppendFresh(std::vector<TokenId>& tokens, int64_t n);
  Status CheckFound(const BenchTest& test, const RequestStats& stats, int64_t wanted) const;

  Engine& engine_;
  uint64_t fresh_ = 0;  // runs of tokens that no prompt has had
};

// Longest sequence that a test comes to.
int64_t ContextOf(const BenchTest& test);

}  // namespace lucid::cli
