// Engine: the public face of liblucid. It owns a model ready to run, its tokenizer and template,
// and serves requests.
//
//   auto engine = Engine::Load({.model = "model.gguf"}).value();
//   engine->Submit({.prompt = engine->tokenizer().value()->Encode("Once upon a time")}).value();
//   while (engine->busy()) {
//     const std::vector<TokenOutput> outputs = engine->Step().value();
//     for (const TokenOutput& out : outputs) std::cout << out.text << std::flush;
//   }
//
// Not thread-safe: one thread submits and steps. The command line runs models through this header
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"
#include "decode/stop.h"
#include "exec/observer.h"
#include "exec/runner.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lucid {

struct EngineConfig {
  std::string model = {};  // a path: .gguf, .safetensors or a Hugging Face folder
  int n_threads = 0;       // 0: one per physical core
  int64_t context = 0;     // positions of a sequence; 0: what the model was trained for
  int64_t batch = 512;     // most prompt tokens computed in one step
  BackendKind backend = BackendKind::kCpu;
  std::string isa = {};  // "" or "auto": the best this CPU has
  DType cache_type_k = DType::kF16;
  DType cache_type_v = DType::kF16;
};

using RequestId = uint64_t;

struct Request {
  std::vector<TokenId> prompt = {};
  SamplerParams sampling = {};
  int64_t max_tokens = -1;             // -1: until the model ends or the context is full
  std::vector<std::string> stop = {};  // the reply ends before any of these
  bool ignore_eos = false;             // go on after an end-of-generation token
  int n_logprobs = -1;  // >= 0: report the log-probability of each token and this many alternatives
  bool explain = false;     // report what every sampler stage did
  uint64_t rng_stream = 0;  // tells apart several replies to one prompt under one seed
};

// What a request did, once it has ended.
struct RequestStats {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, found in the cache of an earlier request
  int64_t generated_tokens = 0;
  double prefill_seconds = 0;  // prompt tokens that were computed
  double decode_seconds = 0;   // from the first token to the last

  double prefill_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

struct TokenOutput {
  RequestId request = 0;
  TokenId id = -1;
  std::string text;  // whole characters that became visible with this token
  std::optional<LogprobResult> logprobs;
  std::optional<SampleReport> explain;
  StopCause cause = StopCause::kNone;  // set on the last output of a request
  RequestStats stats;                  // filled on the last output
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Load(const EngineConfig& config);
  ~Engine();

  // Queues a request. kContextLength with both numbers if the prompt leaves no room in the context;
  // kInvalidArgument for an empty prompt, an id outside the vocabulary or sampler settings that
  // make no sense.
  Result<RequestId> Submit(Request request);
  // Does one step of work: a chunk of a prompt, or one token. Returns the tokens it produced.
  // `observer` may be null.
  Result<std::vector<TokenOutput>> Step(Observer* observer = nullptr);
  // Drops a request and returns what it did so far; no further outputs of it.
  RequestStats Abort(RequestId id);
  bool busy() const;

  // Logits of every position of `tokens`, from an empty cache, in chunks. `on_rows(first, n)` is
  // called after each chunk; LogitsRow(i) then gives row i of the chunk. kContextLength as in
  // Submit.
  Status Forward(std::span<const TokenId> tokens, Observer* observer,
                 const std::function<void(int64_t first, int64_t n)>& on_rows);
  std::span<const float> LogitsRow(int64_t i) const;

  // kNotFound if the model brings no tokenizer (ids still work).
  Result<const Tokenizer*> tokenizer() const;
  // The chat template of the model; kNotFound if the file has none.
  Result<const ChatTemplate*> chat_template() const;
  const Model& model() const;
  const Runner& runner() const;
  const EngineConfig& config() const;
  int64_t context() const;
  double load_seconds() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid
