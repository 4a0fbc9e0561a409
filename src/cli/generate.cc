#include "cli/generate.h"

#include <fmt/format.h>

#include <csignal>

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

Result<Reply> Generate(Engine& engine, Request request,
                       const std::function<void(const TokenOutput&)>& on_output) {
  const InterruptGuard guard;
  Reply reply;
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine.Submit(std::move(request)));
  while (!stream.ended()) {
    if (InterruptGuard::interrupted()) stream.Abort();
    engine.Step();
    while (std::optional<TokenOutput> output = stream.TryNext()) {
      if (output->error) return tl::unexpected<Error>(*output->error);
      reply.text += output->text;
      if (output->cause != StopCause::kNone) {
        reply.cause = output->cause;
        reply.stats = output->stats;
      }
      on_output(*output);
      if (output->id >= 0) reply.outputs.push_back(*std::move(output));
    }
  }
  return reply;
}

std::string StatsLine(const Reply& reply, uint64_t seed) {
  const RequestStats& s = reply.stats;
  std::string line = fmt::format("prompt {} tokens", s.prompt_tokens);
  if (s.cached_tokens > 0) line += fmt::format(" ({} cached)", s.cached_tokens);
  if (s.prefill_seconds > 0) line += fmt::format(" {:.1f} tok/s", s.prefill_tokens_per_second());
  line += fmt::format(" | reply {} tokens", s.generated_tokens);
  if (s.decode_seconds > 0) line += fmt::format(" {:.1f} tok/s", s.decode_tokens_per_second());
  return line + fmt::format(" | stop: {} | seed {}", StopCauseName(reply.cause), seed);
}

}  // namespace lucid::cli
