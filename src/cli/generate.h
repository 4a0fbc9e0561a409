// Running one request to its end, for run and chat: streaming, Ctrl-C, the line of figures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lucid::cli {

// While one lives, Ctrl-C sets a flag instead of ending the program.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();

 private:
  void (*previous_)(int);
};

struct FinishedReply {
  std::string text;
  std::vector<TokenOutput> outputs;  // one per token, the last with the stop cause
  StopCause cause = StopCause::kNone;
  double score = 0;  // beams: of the hypothesis
  RequestStats stats;
};

// Submits and steps until every reply of the request has ended, or until Ctrl-C (cause kAborted;
// what was said stays). `on_output` sees each token as it comes. One error ends all.
Result<std::vector<FinishedReply>> GenerateAll(
    Engine& engine, Request request, const std::function<void(const TokenOutput&)>& on_output);
// The same for a request of one reply.
Result<FinishedReply> Generate(Engine& engine, Request request,
                               const std::function<void(const TokenOutput&)>& on_output);

// "prompt 12 tokens (4 cached) 345.6 tok/s | reply 64 tokens 123.4 tok/s | stop: length | seed 7 |
// cache 1.2 MiB", and what a bounded cache cost.
std::string StatsLine(const FinishedReply& reply, uint64_t seed);

}  // namespace lucid::cli
