#include "engine/traced_run.h"

#include <algorithm>
#include <utility>

namespace lucid {
namespace {

class Tee final : public Observer {
 public:
  Tee(std::vector<Observer*> observers, const std::vector<Observer*>& more)
      : observers_(std::move(observers)) {
    observers_.insert(observers_.end(), more.begin(), more.end());
  }
  void AfterOp(const ObservedOp& observed) override {
    for (Observer* observer : observers_) observer->AfterOp(observed);
  }

 private:
  std::vector<Observer*> observers_;
};

}  // namespace

void PrepareForTrace(int64_t prompts, int64_t tokens, EngineConfig& config) {
  config.prefix_sharing = false;
  config.n_parallel = static_cast<int32_t>(std::max<int64_t>(prompts, config.n_parallel));
  constexpr int64_t kMostInStep = 65536;  // longer prefills take several steps
  config.batch = std::max(config.batch, std::min(prompts * tokens, kMostInStep));
}

Status RunObserved(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                   int64_t decode_steps, const RunObservers& observers) {
  std::vector<Stream> streams;
  for (const std::vector<TokenId>& prompt : prompts) {
    Request request;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.max_tokens = decode_steps + 1;
    request.ignore_eos = true;
    LUCID_ASSIGN_OR_RETURN(Stream stream, engine.Submit(std::move(request)));
    streams.push_back(std::move(stream));
  }
  Tee prefill(observers.prefill, observers.every);
  Tee first_decode(observers.decode, observers.every);
  Tee later({}, observers.every);
  // A sequence's first token ends its prefill.
  std::vector<bool> started(streams.size(), false);
  Observer* observer = &prefill;
  while (engine.Step(observer)) {
    if (observer == &first_decode) observer = &later;
    for (size_t i = 0; i < streams.size(); ++i) {
      while (const std::optional<TokenOutput> out = streams[i].TryNext()) {
        if (out->error) return tl::unexpected<Error>(*out->error);
        started[i] = true;
      }
    }
    const bool all_started = std::ranges::find(started, false) == started.end();
    if (observer == &prefill && all_started) observer = &first_decode;
  }
  return {};
}

std::vector<std::vector<TokenId>> MadeUpPrompts(int64_t count, int64_t tokens, int64_t vocab) {
  // Any step that shares no factor with most vocabularies visits ids far apart.
  constexpr int64_t kStep = 7919;
  std::vector<std::vector<TokenId>> prompts(static_cast<size_t>(count));
  int64_t id = 1;
  for (std::vector<TokenId>& prompt : prompts) {
    for (int64_t i = 0; i < tokens; ++i) {
      id = (id + kStep) % vocab;
      prompt.push_back(static_cast<TokenId>(id));
    }
  }
  return prompts;
}

}  // namespace lucid
