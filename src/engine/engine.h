// Engine: the public face of liblucid. It owns a model ready to run, its tokenizer and template,
// the cache, and the one loop that serves every request.
//
//   auto engine = Engine::Load({.model = "model.gguf"}).value();
//   Request request{.prompt = engine->tokenizer().value()->Encode("Once upon a time")};
//   Stream stream = engine->Submit(std::move(request)).value();
//   while (const std::optional<TokenOutput> out = stream.Next()) std::cout << out->text <<
//   std::flush;
//
// Start() gives the loop a thread of its own; without it, Step() and Stream::Next() do the work on
// the caller's thread. Submit, Abort, Stats and streams may be used from any thread. The command
// line runs models through this header alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/config.h"
#include "engine/request.h"
#include "engine/stream.h"
#include "exec/observer.h"
#include "exec/runner.h"
#include "exec/step_times.h"
#include "sched/scheduler.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lucid {

// How many steps had so many tokens.
struct StepSizes {
  static constexpr int64_t kLimits[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  // [i]: of at most kLimits[i] tokens and more than the limit before; the last: of more than all.
  std::array<int64_t, std::size(kLimits) + 1> steps{};
  int64_t tokens = 0;  // of all of them

  void Add(int64_t n) {
    ++steps[static_cast<size_t>(std::lower_bound(std::begin(kLimits), std::end(kLimits), n) -
                                std::begin(kLimits))];
    tokens += n;
  }
};

struct EngineStats {
  SchedulerStats scheduler;
  KvCacheStats cache;
  int64_t requests = 0;  // submitted
  int64_t requests_ended = 0;
  int64_t queued = 0;             // submitted, no step yet
  double busy_seconds = 0;        // in steps
  double scheduling_seconds = 0;  // of them, neither running the model nor sampling
  double sampling_seconds = 0;
  StepSizes step_sizes;
};

struct SequenceHandover;
class SequenceSender;

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config);
  // Ends every request (kAborted) and the worker. Where packed weights are still being written for
  // the next start, waits some seconds for that (EngineConfig::pack_cache).
  ~Engine();

  // Queues a request. kContextLength with both numbers if the prompt leaves no room in the context;
  // kCapacity with both numbers if it could never fit the cache or the queue is full;
  // kInvalidArgument for an empty prompt, an id outside the vocabulary or settings that make no
  // sense.
  Result<Stream> Submit(Request request);
  // Ends a request within one step, in its prefill too. Unknown ids are ignored, and so are those
  // that another engine goes on with (Stream::Abort finds them).
  void Abort(RequestId id);
  // What happened so far, as of the last step.
  EngineStats Stats() const;

  // Runs the loop on a thread of its own, until Stop(). After that readers of streams step it.
  void Start();
  void Stop();
  // One step on the caller's thread. False if there is nothing to do. `observer` and `times` may be
  // null; one of them is (Runner::Run). A step without tokens leaves `times` as it is.
  bool Step(Observer* observer = nullptr, StepTimes* times = nullptr);
  bool busy() const;

  // Keeps the cache of `tokens` (as far as it is still there) in a file; returns how many tokens
  // that are. kIo.
  Result<int64_t> SaveCache(const std::string& path, std::span<const TokenId> tokens);
  // Brings it back as a cached prefix. kInvalidArgument if it belongs to another model, numerics or
  // cache type; kInvalidFile for a damaged file, kCapacity with both numbers.
  Result<int64_t> LoadCache(const std::string& path);

  // Waits until packed weights that are being written for the next start have been.
  void FinishPackCache();

  // Splitting prefill and decode over two engines (DistServe, Zhong et al. 2024): with a sender
  // set, every request leaves this engine with its first token; another engine of the same model
  // goes on with it and feeds the same stream (engine/handover.h).
  Status SetHandover(std::shared_ptr<SequenceSender> sender);
  // Whether this engine can bring a sequence to its end: the same model, kernels and cache type,
  // room in context and cache.
  Status CheckAccept(const SequenceHandover& handover) const;
  // Goes on with another engine's sequence, under the id that it has. An error ends its stream.
  void Accept(SequenceHandover handover);

  // kNotFound if the model brings no tokenizer (ids still work).
  Result<const Tokenizer*> tokenizer() const;
  // The chat template of the model; kNotFound if the file has none.
  Result<const ChatTemplate*> chat_template() const;
  const Model& model() const;
  const Runner& runner() const;
  const KvLayout& kv_layout() const;
  const EngineConfig& config() const;
  int64_t context() const;   // positions of a sequence
  int64_t capacity() const;  // tokens of one sequence that the whole cache holds, at most context
  double load_seconds() const;
  // What the bits of the cache depend on: weights, kernels, cache type.
  uint64_t fingerprint() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid
