#include "cli/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "cli/command.h"

namespace lucid::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void OnInterrupt(int) {
  g_interrupted = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_interrupted = 0;
  previous_ = std::signal(SIGINT, OnInterrupt);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, previous_);
}

bool InterruptGuard::interrupted() {
  return g_interrupted != 0;
}

Result<std::vector<FinishedReply>> GenerateAll(
    Engine& engine, Request request, const std::function<void(const TokenOutput&)>& on_output) {
  const InterruptGuard guard;
  std::vector<FinishedReply> replies(static_cast<size_t>(std::max(request.n, 1)));
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine.Submit(std::move(request)));
  while (!stream.ended()) {
    if (InterruptGuard::interrupted()) stream.Abort();
    engine.Step();
    while (std::optional<TokenOutput> output = stream.TryNext()) {
      if (output->error) return tl::unexpected<Error>(*output->error);
      FinishedReply& reply = replies[static_cast<size_t>(output->index)];
      reply.text += output->text;
      if (output->cause != StopCause::kNone) {
        reply.cause = output->cause;
        reply.score = output->score;
        reply.stats = output->stats;
      }
      on_output(*output);
      if (output->id >= 0) reply.outputs.push_back(*std::move(output));
    }
  }
  return replies;
}

Result<FinishedReply> Generate(Engine& engine, Request request,
                               const std::function<void(const TokenOutput&)>& on_output) {
  LUCID_ASSIGN_OR_RETURN(std::vector<FinishedReply> replies,
                         GenerateAll(engine, std::move(request), on_output));
  return std::move(replies[0]);
}

std::string StatsLine(const FinishedReply& reply, uint64_t seed) {
  const RequestStats& s = reply.stats;
  std::string line = fmt::format("prompt {} tokens", s.prompt_tokens);
  if (s.cached_tokens > 0) line += fmt::format(" ({} cached)", s.cached_tokens);
  if (s.prefill_seconds > 0) line += fmt::format(" {:.1f} tok/s", s.prefill_tokens_per_second());
  line += fmt::format(" | reply {} tokens", s.generated_tokens);
  if (s.decode_seconds > 0 && s.generated_tokens > 1) {
    line += fmt::format(" {:.1f} tok/s", s.decode_tokens_per_second());
  }
  line += fmt::format(" | stop: {} | seed {}", StopCauseName(reply.cause), seed);
  if (s.kv_bytes > 0) line += " | cache " + FormatBytes(s.kv_bytes);
  if (s.eviction.evictions > 0) {
    line += fmt::format(" | evicted {} tokens with {:.2f} % of the attention",
                        s.eviction.evicted_tokens, 100 * s.eviction.dropped_share());
  }
  if (s.audit && s.audit->positions > 0) {
    line += fmt::format(
        " | audit of {} tokens: KL mean {:.5f}, most {:.5f}, same top token {:.1f} %",
        s.audit->positions, s.audit->mean_kl, s.audit->max_kl,
        100.0 * static_cast<double>(s.audit->same_top1) / static_cast<double>(s.audit->positions));
  }
  return line;
}

}  // namespace lucid::cli
