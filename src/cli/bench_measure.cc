#include "cli/bench_measure.h"

#include <utility>

#include "base/rng.h"
#include "base/timer.h"

namespace lucid::cli {
namespace {

constexpr uint64_t kSeed = 42;
// Streams of random numbers: one for the tokens of depths, one for all others.
constexpr uint32_t kDepthLane = 0, kFreshLane = 1;

TokenId Draw(int64_t vocab, uint64_t run, uint64_t position, uint32_t lane) {
  return static_cast<TokenId>(UniformDraw(kSeed, run, position, lane) * static_cast<double>(vocab));
}

// What the streams of a test have said so far.
struct Outputs {
  int64_t tokens = 0;
  std::vector<int64_t> by_stream;
  int64_t begun = 0, ended = 0;  // streams
  RequestStats least_cached;     // of the stream that found least in the cache
  std::optional<Error> error;
};

void Take(std::vector<Stream>& streams, Outputs& outputs) {
  outputs.by_stream.resize(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    while (const std::optional<TokenOutput> out = streams[i].TryNext()) {
      if (out->error && !outputs.error) outputs.error = out->error;
      if (out->id >= 0) {
        ++outputs.tokens;
        if (++outputs.by_stream[i] == 1) ++outputs.begun;
      }
      if (out->cause == StopCause::kNone) continue;
      if (++outputs.ended == 1 || out->stats.cached_tokens < outputs.least_cached.cached_tokens) {
        outputs.least_cached = out->stats;
      }
    }
  }
}

// Steps until every stream has begun, or has ended.
Status StepUntil(Engine& engine, std::vector<Stream>& streams, Outputs& outputs, bool ended) {
  while ((ended ? outputs.ended : outputs.begun) < std::ssize(streams)) {
    const bool worked = engine.Step();
    Take(streams, outputs);
    if (outputs.error) return tl::unexpected<Error>(*outputs.error);
    if (!worked && !engine.busy()) break;
  }
  return {};
}

}  // namespace

int64_t ContextOf(const BenchTest& test) {
  // A generation has a prompt of one token at least and needs a first token before the clock
  // starts.
  return test.n_depth + std::max(test.n_prompt, test.n_gen + 2) + 1;
}

std::vector<TokenId> BenchDriver::DepthTokens(int64_t n, int32_t sequence) const {
  std::vector<TokenId> tokens;
  const int64_t vocab = engine_.model().config.vocab_size;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(
        Draw(vocab, static_cast<uint64_t>(sequence), static_cast<uint64_t>(i), kDepthLane));
  }
  return tokens;
}

// Tokens of which no prompt before had the first at this place, so that none is found in the cache
// (as long as there are fewer runs than tokens in the vocabulary).
void BenchDriver::AppendFresh(std::vector<TokenId>& tokens, int64_t n) {
  const int64_t vocab = engine_.model().config.vocab_size;
  const uint64_t run = fresh_++;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(i == 0 ? static_cast<TokenId>(run % static_cast<uint64_t>(vocab))
                            : Draw(vocab, run, static_cast<uint64_t>(i), kFreshLane));
  }
}

Status BenchDriver::CheckFound(const BenchTest& test, const RequestStats& stats,
                               int64_t wanted) const {
  if (stats.cached_tokens == wanted && stats.preemptions == 0) return {};
  return Err(
      ErrorCode::kCapacity,
      "the cache of {} bytes does not keep {} sequences of {} tokens: one found {} of the {} "
      "tokens before the measured ones",
      engine_.kv_layout().Bytes(engine_.Stats().cache.total), test.n_seqs, ContextOf(test),
      stats.cached_tokens, wanted);
}

// Brings the first n_depth tokens of every sequence into the cache; what is there already is found.
Status BenchDriver::FillDepth(const BenchTest& test) {
  for (int32_t i = 0; test.n_depth > 0 && i < test.n_seqs; ++i) {
    Request request;
    request.prompt = DepthTokens(test.n_depth, i);
    request.forced_reply = {0};
    LUCID_ASSIGN_OR_RETURN(Stream stream, engine_.Submit(std::move(request)));
    while (const std::optional<TokenOutput> out = stream.Next()) {
      if (out->error) return tl::unexpected<Error>(*out->error);
    }
  }
  return {};
}

Result<BenchSample> BenchDriver::Prompt(const BenchTest& test) {
  LUCID_RETURN_IF_ERROR(FillDepth(test));
  std::vector<Request> requests(static_cast<size_t>(test.n_seqs));
  for (int32_t i = 0; i < test.n_seqs; ++i) {
    Request& request = requests[static_cast<size_t>(i)];
    request.prompt = DepthTokens(test.n_depth, i);
    AppendFresh(request.prompt, test.n_prompt);
    request.forced_reply = {0};
  }
  std::vector<Stream> streams;
  Outputs outputs;
  const Clock::time_point start = Clock::now();
  for (Request& request : requests) {
    LUCID_ASSIGN_OR_RETURN(Stream stream, engine_.Submit(std::move(request)));
    streams.push_back(std::move(stream));
  }
  LUCID_RETURN_IF_ERROR(StepUntil(engine_, streams, outputs, /*ended=*/true));
  const BenchSample sample{SecondsSince(start), test.n_prompt * test.n_seqs};
  LUCID_RETURN_IF_ERROR(CheckFound(test, outputs.least_cached, test.n_depth));
  return sample;
}

Result<BenchSample> BenchDriver::Generate(const BenchTest& test) {
  LUCID_RETURN_IF_ERROR(FillDepth(test));
  std::vector<Stream> streams;
  for (int32_t i = 0; i < test.n_seqs; ++i) {
    Request request;
    request.prompt = DepthTokens(test.n_depth, i);
    // The last token of the prompt gives the first of the reply, before the clock starts.
    if (test.n_depth == 0) AppendFresh(request.prompt, 1);
    AppendFresh(request.forced_reply, test.n_gen + 1);
    LUCID_ASSIGN_OR_RETURN(Stream stream, engine_.Submit(std::move(request)));
    streams.push_back(std::move(stream));
  }
  Outputs outputs;
  LUCID_RETURN_IF_ERROR(StepUntil(engine_, streams, outputs, /*ended=*/false));
  const int64_t before = outputs.tokens;
  const Clock::time_point start = Clock::now();
  LUCID_RETURN_IF_ERROR(StepUntil(engine_, streams, outputs, /*ended=*/true));
  const BenchSample sample{SecondsSince(start), outputs.tokens - before};
  LUCID_RETURN_IF_ERROR(
      CheckFound(test, outputs.least_cached, std::max<int64_t>(test.n_depth - 1, 0)));
  return sample;
}

Result<std::vector<BenchSample>> BenchDriver::Measure(const BenchTest& test, int repetitions,
                                                      bool warmup) {
  std::vector<BenchSample> samples;
  for (int i = warmup ? -1 : 0; i < repetitions; ++i) {
    LUCID_ASSIGN_OR_RETURN(const BenchSample sample,
                           test.n_prompt > 0 ? Prompt(test) : Generate(test));
    if (i >= 0) samples.push_back(sample);
  }
  return samples;
}

}  // namespace lucid::cli
