// Loading a model into an engine, checking requests, session files. The loop is in loop.h.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/memory_info.h"
#include "base/mmap_file.h"
#include "base/topology.h"
#include "engine/fingerprint.h"
#include "engine/footprint.h"
#include "engine/loop.h"
#include "engine/pack_writer.h"
#include "engine/tokenizer_loader.h"
#include "exec/key_rotation.h"
#include "sched/block_needs.h"
#include "store/pack_cache.h"

namespace lucid {
namespace {

// More replies to one prompt than anybody asks for.
constexpr int32_t kMostReplies = 128;

Status CheckConfig(const EngineConfig& config) {
  const auto check = [](int64_t value, int64_t least, int64_t most, const char* what) -> Status {
    if (value >= least && value <= most) return {};
    return Err(ErrorCode::kInvalidArgument, "{} is {}, must be {} to {}", what, value, least, most);
  };
  LUCID_RETURN_IF_ERROR(check(config.batch, 1, 65536, "the batch size"));
  LUCID_RETURN_IF_ERROR(check(config.n_threads, 0, 1024, "the number of threads"));
  LUCID_RETURN_IF_ERROR(
      check(config.n_threads_batch, 0, 1024, "the number of threads for batches"));
  LUCID_RETURN_IF_ERROR(check(config.n_parallel, 1, 4096, "the number of parallel sequences"));
  LUCID_RETURN_IF_ERROR(check(config.max_queue, 0, int64_t{1} << 20, "the queue's length"));
  LUCID_RETURN_IF_ERROR(check(config.chunk, 0, 65536, "the prefill chunk"));
  LUCID_RETURN_IF_ERROR(check(config.logit_rows, 1, kMostContext, "rows of logits in a step"));
  LUCID_RETURN_IF_ERROR(check(config.kv_memory, 0, int64_t{1} << 50, "the cache's memory"));
  LUCID_RETURN_IF_ERROR(check(config.swap_memory, 0, int64_t{1} << 50, "the swap space"));
  if (!(config.itl_target_ms >= 0 && config.itl_target_ms <= 1e6)) {
    return Err(ErrorCode::kInvalidArgument,
               "the inter-token latency target is {} ms, must be 0 to 1000000",
               config.itl_target_ms);
  }
  if (config.preemption == PreemptionMode::kSwap && config.swap_memory == 0) {
    return Err(ErrorCode::kInvalidArgument,
               "preemption by swapping needs a swap space (--swap-space), which is 0");
  }
  return {};
}

PoolCounts SwapBlocks(const KvLayout& layout, const PoolCounts& blocks, int64_t bytes) {
  PoolCounts swap{};
  const int64_t whole = layout.Bytes(blocks);
  for (size_t pool = 0; pool < layout.pools().size(); ++pool) {
    swap[pool] = static_cast<int64_t>(
        static_cast<double>(blocks[pool]) *
        std::min(1.0, static_cast<double>(bytes) / static_cast<double>(whole)));
  }
  return swap;
}

// The longest sequence that the pools hold when nobody else is there.
int64_t LongestSequence(const KvLayout& layout, const PoolCounts& blocks, int64_t context) {
  return LargestCount(context, [&](int64_t n) { return Fits(LeastBlocks(layout, n, n), blocks); });
}

// Gives back the pages of weights that keys and fingerprints have looked into: a few bytes of every
// tensor map sixteen pages each, and kernels read most weights in their packed form.
void ReleaseLookedAt(const Checkpoint& checkpoint) {
  std::vector<std::pair<const std::byte*, const std::byte*>> spans(checkpoint.files().size());
  for (const TensorEntry& entry : checkpoint.tensors()) {
    const std::byte* const begin = entry.tensor.data;
    const std::byte* const end = begin + entry.tensor.bytes();
    auto& [first, last] = spans[static_cast<size_t>(entry.shard)];
    first = first == nullptr ? begin : std::min(first, begin);
    last = std::max(last, end);
  }
  for (const auto& [first, last] : spans) {
    if (first != nullptr) ReleaseMappedPages(first, static_cast<size_t>(last - first));
  }
}

}  // namespace

double RequestStats::prefill_tokens_per_second() const {
  return prefill_seconds > 0 ? static_cast<double>(prompt_tokens - cached_tokens) / prefill_seconds
                             : 0;
}

double RequestStats::decode_tokens_per_second() const {
  // The first token comes out of the prefill.
  return decode_seconds > 0 ? static_cast<double>(generated_tokens - 1) / decode_seconds : 0;
}

struct Engine::Impl {
  EngineConfig config;
  Model model;
  LoadedTokenizer text;
  // Parsed when first asked for.
  std::once_flag parse_template;
  Result<ChatTemplate> chat_template = Err(ErrorCode::kNotFound, "not parsed yet");
  std::unique_ptr<Runner> runner;
  std::unique_ptr<PackWriter> pack_writer;  // of the runner's weights
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<EngineLoop> loop;
  int64_t context = 0;
  int64_t capacity = 0;
  uint64_t fingerprint = 0;
  double load_seconds = 0;

  Status LoadText();
  Status ChooseContext();
  Status StartRunner();
  void KeepPackedWeights();
  void LogLoaded() const;
  Status CheckPrompt(const Request& request) const;
  Status CheckReplies(const Request& request) const;
  Status CheckCache(const Request& request) const;
  Result<std::unique_ptr<ActiveRequest>> Activate(Request request);
};

// A model without a tokenizer still computes logits; a tokenizer that is there must be valid.
Status Engine::Impl::LoadText() {
  Result<LoadedTokenizer> loaded = LoadTokenizerOf(*model.checkpoint);
  if (loaded) {
    text = *std::move(loaded);
  } else if (loaded.error().code != ErrorCode::kNotFound) {
    return tl::unexpected<Error>(loaded.error());
  }
  return {};
}

Status Engine::Impl::ChooseContext() {
  LUCID_ASSIGN_OR_RETURN(context, ContextOf(model.config, config));
  if (context > model.config.context_length) {
    LogWarn("the context of {} is longer than the {} tokens the model was trained for", context,
            model.config.context_length);
  }
  return {};
}

Status Engine::Impl::StartRunner() {
  config.logit_rows = LogitRows(model.config, config);
  LUCID_ASSIGN_OR_RETURN(RunnerOptions options,
                         RunnerOptionsOf(model, config, context, AvailableMemory()));
  if (!config.pack_cache.empty()) {
    options.pack_files = {PackCacheFile(config.pack_cache, config.model)};
    if (std::string beside = PackFileBeside(config.model); !beside.empty()) {
      options.pack_files.push_back(std::move(beside));
    }
  }
  LUCID_ASSIGN_OR_RETURN(runner, Runner::Create(model, options));
  // Memory that somebody has set aside is taken at once; else pages come as they are written.
  if (config.kv_memory > 0) LUCID_RETURN_IF_ERROR(runner->kv().Populate());
  const KvLayout& layout = runner->kv().layout();
  KvCacheOptions cache_options;
  cache_options.n_blocks = options.kv_blocks;
  cache_options.swap_blocks = SwapBlocks(layout, options.kv_blocks, config.swap_memory);
  cache_options.prefix_sharing = config.prefix_sharing;
  cache_options.strict = config.strict;
  LUCID_ASSIGN_OR_RETURN(cache, KvCache::Create(layout, cache_options, runner->kv()));
  capacity = LongestSequence(layout, options.kv_blocks, context);
  fingerprint = CacheFingerprint(model, *runner);
  ReleaseLookedAt(*model.checkpoint);

  SchedulerOptions scheduling;
  scheduling.max_step_tokens = options.max_tokens;
  scheduling.max_sequences = config.n_parallel;
  // The engine refuses by its own count; forks and shadows must not be refused half-way.
  scheduling.max_waiting = config.max_queue + 2 * kMostReplies * config.n_parallel + 1024;
  scheduling.chunk = config.chunk > 0 ? std::min(config.chunk, config.batch) : config.batch;
  scheduling.itl_target_seconds = config.itl_target_ms / 1e3;
  scheduling.preemption = config.preemption;
  loop = std::make_unique<EngineLoop>(LoopParts{.config = &config,
                                                .tokenizer = text.tokenizer.get(),
                                                .runner = runner.get(),
                                                .cache = cache.get(),
                                                .rotations = KeyRotations(runner->plan()),
                                                .length_rope = LengthDependentRope(model.config),
                                                .fingerprint = fingerprint},
                                      scheduling);
  return {};
}

void Engine::Impl::KeepPackedWeights() {
  const PackedWeights& packed = runner->packed();
  // Of --numerics float only plain types are packed: not what other starts want.
  if (config.pack_cache.empty() || packed.bytes() == 0 || config.numerics == Numerics::kFloat) {
    return;
  }
  std::string file = PackCacheFile(config.pack_cache, config.model);
  if (packed.file() == file) TouchPack(file);
  if (packed.file().empty()) pack_writer = std::make_unique<PackWriter>(packed, std::move(file));
}

void Engine::Impl::LogLoaded() const {
  const KvStorage& kv = runner->kv();
  LogInfo(
      "{}: {}, {} layers, {:.1f} MB, context {}, {} threads, cache of {:.1f} MB ({} bytes a "
      "token), "
      "loaded in {:.3f} s",
      config.model, model.config.arch, model.config.n_layers,
      static_cast<double>(model.checkpoint->file_bytes()) / 1e6, context, runner->n_threads(),
      static_cast<double>(kv.bytes()) / 1e6, kv.layout().BytesPerToken(), load_seconds);
  const int threads = runner->pool().size();
  if (const int cpus = AllowedCpuCount(); threads > cpus) {
    LogWarn("{} threads are more than the {} CPUs that this process may use", threads, cpus);
  }
  if (capacity < context) {
    LogWarn("the cache holds {} tokens of one sequence, less than the context of {}", capacity,
            context);
  }
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineConfig& config) {
  const Clock::time_point start = Clock::now();
  LUCID_RETURN_IF_ERROR(CheckConfig(config));
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  LUCID_ASSIGN_OR_RETURN(impl->model, LoadModel(config.model, config.rope));
  LUCID_RETURN_IF_ERROR(impl->LoadText());
  LUCID_RETURN_IF_ERROR(impl->ChooseContext());
  LUCID_RETURN_IF_ERROR(impl->StartRunner());
  impl->load_seconds = SecondsSince(start);
  impl->LogLoaded();
  impl->KeepPackedWeights();
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Status Engine::Impl::CheckPrompt(const Request& request) const {
  if (request.prompt.empty()) {
    return Err(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  }
  for (const std::vector<TokenId>* ids : {&request.prompt, &request.forced_reply}) {
    for (const TokenId id : *ids) {
      if (id >= 0 && id < model.config.vocab_size) continue;
      return Err(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id,
                 model.config.vocab_size);
    }
  }
  const int64_t length = std::ssize(request.prompt);
  if (length > context) {
    return Err(ErrorCode::kContextLength, "the prompt has {} tokens, the context holds {}", length,
               context);
  }
  if (length == context && request.max_tokens != 0) {
    return Err(ErrorCode::kContextLength,
               "the prompt has {} tokens, which leaves no room for a reply in a context of {}",
               length, context);
  }
  return {};
}

// Numbers that are not what their comments allow.
Status CheckNumbers(const Request& request) {
  const auto check = [](int64_t value, const char* what) -> Status {
    if (value >= -1) return {};
    return Err(ErrorCode::kInvalidArgument, "{} is {}, must be at least -1", what, value);
  };
  LUCID_RETURN_IF_ERROR(check(request.max_tokens, "max_tokens"));
  LUCID_RETURN_IF_ERROR(check(request.n_logprobs, "the number of log-probabilities"));
  LUCID_RETURN_IF_ERROR(check(request.logits_from, "the first position of logits"));
  if (!(request.deadline_seconds >= 0)) {
    return Err(ErrorCode::kInvalidArgument, "the deadline is {} s, must be 0 or more",
               request.deadline_seconds);
  }
  return {};
}

Status Engine::Impl::CheckReplies(const Request& request) const {
  if (request.n < 1 || request.n > kMostReplies) {
    return Err(ErrorCode::kInvalidArgument, "n is {}, must be 1 to {}", request.n, kMostReplies);
  }
  const bool single = request.n == 1 && request.beam.width == 0;
  if (!request.forced_reply.empty() && !single) {
    return Err(ErrorCode::kInvalidArgument, "a forced reply is one reply, without beams");
  }
  if (request.on_logits && !single) {
    return Err(ErrorCode::kInvalidArgument, "logits are given for one reply, without beams");
  }
  if (request.beam.width == 0) return {};
  if (request.beam.width < request.n) {
    return Err(ErrorCode::kInvalidArgument,
               "a beam width of {} cannot give {} replies; it must be at least as many",
               request.beam.width, request.n);
  }
  if (request.beam.width > config.n_parallel) {
    return Err(ErrorCode::kInvalidArgument,
               "a beam width of {} needs as many parallel sequences, and the engine runs {}",
               request.beam.width, config.n_parallel);
  }
  if (!std::isfinite(request.beam.length_penalty) || std::abs(request.beam.length_penalty) > 100) {
    return Err(ErrorCode::kInvalidArgument, "the length penalty is {}, must be -100 to 100",
               request.beam.length_penalty);
  }
  const SamplerParams& s = request.sampling;
  if (!request.stop.empty() || request.explain || !s.logit_bias.empty() ||
      s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "beam search follows the model's own probabilities: stop strings, penalties, "
               "logit_bias and sampler reports do not go with it");
  }
  return {};
}

Status Engine::Impl::CheckCache(const Request& request) const {
  const bool full = request.eviction.policy == KvPolicy::kFull;
  if (full && request.eviction.budget != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "a cache budget of {} needs a policy that evicts: window_sink, h2o or snapkv",
               request.eviction.budget);
  }
  if (request.kv_audit && full) {
    return Err(ErrorCode::kInvalidArgument,
               "the cache audit compares a bounded cache with the full one; choose a cache policy");
  }
  if (!full && (request.n > 1 || request.beam.width > 0)) {
    return Err(ErrorCode::kInvalidArgument,
               "the cache policy {} works for one reply at a time: n must be 1, without beams",
               Name(request.eviction.policy));
  }
  if (request.eviction.policy == KvPolicy::kWindowSink &&
      LengthDependentRope(model.config) != nullptr) {
    return Err(ErrorCode::kUnsupported,
               "the cache policy window_sink moves keys, which this model rotates by the length of "
               "the sequence");
  }
  if (!full) LUCID_RETURN_IF_ERROR(CheckEviction(request.eviction, runner->kv().layout()));
  return {};
}

Result<std::unique_ptr<ActiveRequest>> Engine::Impl::Activate(Request request) {
  LUCID_RETURN_IF_ERROR(CheckNumbers(request));
  LUCID_RETURN_IF_ERROR(CheckPrompt(request));
  LUCID_RETURN_IF_ERROR(CheckReplies(request));
  LUCID_RETURN_IF_ERROR(CheckCache(request));
  LUCID_RETURN_IF_ERROR(StopMatcher::Create(request.stop));
  LUCID_ASSIGN_OR_RETURN(SamplerChain sampler,
                         SamplerChain::Create(request.sampling, runner->row_kernels()));
  if (!request.forced_reply.empty()) request.max_tokens = std::ssize(request.forced_reply);

  const int64_t n_prompt = std::ssize(request.prompt);
  const bool bounded = request.eviction.policy != KvPolicy::kFull && !request.kv_audit;
  const int64_t most = bounded ? context : std::min(context, std::max(capacity, n_prompt + 1));
  const int64_t max_length =
      request.max_tokens < 0 ? most : n_prompt + std::min(request.max_tokens, context - n_prompt);
  auto active = std::make_unique<ActiveRequest>(std::move(sampler));
  active->max_length = max_length;
  if (request.beam.width > 0) {
    const bool ignore_eos = request.ignore_eos;
    active->beam.emplace(request.beam.width, request.beam.length_penalty,
                         [tokenizer = text.tokenizer.get(), ignore_eos](TokenId id) {
                           return !ignore_eos && tokenizer != nullptr &&
                                  tokenizer->IsEndOfGeneration(id);
                         });
  }
  if (request.kv_audit) active->auditor = std::make_unique<KvAuditor>();
  active->id = loop->NewId();
  active->submitted = active->asked = Clock::now();
  active->request = std::move(request);
  return active;
}

Result<Stream> Engine::Submit(Request request) {
  LUCID_ASSIGN_OR_RETURN(std::unique_ptr<ActiveRequest> active,
                         impl_->Activate(std::move(request)));
  if (const int64_t queued = impl_->loop->queued(); queued >= impl_->config.max_queue) {
    return Err(ErrorCode::kCapacity, "{} requests wait already, and the queue holds {}", queued,
               impl_->config.max_queue);
  }
  LUCID_RETURN_IF_ERROR(impl_->loop->CheckFits(*active));
  active->stream = std::make_shared<StreamChannel>(active->id, active->request.n, *impl_->loop);
  Stream stream(active->stream);
  impl_->loop->Submit(std::move(active));
  return stream;
}

void Engine::Abort(RequestId id) {
  impl_->loop->AbortRequest(id);
}
EngineStats Engine::Stats() const {
  return impl_->loop->Stats();
}
void Engine::Start() {
  impl_->loop->Start();
}
void Engine::Stop() {
  impl_->loop->Stop();
}
bool Engine::Step(Observer* observer, StepTimes* times) {
  LUCID_CHECK(!impl_->loop->has_worker(), "the worker steps this engine");
  return impl_->loop->Step(observer, times);
}
bool Engine::busy() const {
  return impl_->loop->busy();
}

Result<int64_t> Engine::SaveCache(const std::string& path, std::span<const TokenId> tokens) {
  std::optional<KvSnapshot> snapshot;
  LUCID_RETURN_IF_ERROR(impl_->loop->RunAndWait([&] {
    KvCache& cache = *impl_->cache;
    const SequenceHandle sequence = cache.Open();
    const int64_t found = cache.Attach(sequence, tokens, std::ssize(tokens), kAllTokens,
                                       /*counts=*/false);
    snapshot =
        TakeSnapshot(cache, sequence, tokens.first(static_cast<size_t>(found)), impl_->fingerprint);
    cache.Close(sequence);
  }));
  LUCID_RETURN_IF_ERROR(WriteSnapshotFile(path, *snapshot));
  return std::ssize(snapshot->tokens);
}

Result<int64_t> Engine::LoadCache(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const KvSnapshot snapshot, ReadSnapshotFile(path));
  Status restored;
  LUCID_RETURN_IF_ERROR(impl_->loop->RunAndWait([&] {
    KvCache& cache = *impl_->cache;
    const SequenceHandle sequence = cache.Open();
    restored = RestoreSnapshot(cache, sequence, snapshot, impl_->fingerprint);
    cache.Close(sequence);
  }));
  LUCID_RETURN_IF_ERROR(restored);
  return std::ssize(snapshot.tokens);
}

void Engine::FinishPackCache() {
  if (impl_->pack_writer) impl_->pack_writer->Wait();
}

Status Engine::SetHandover(std::shared_ptr<SequenceSender> sender) {
  return impl_->loop->RunAndWait([&] { impl_->loop->SetHandover(std::move(sender)); });
}

Status Engine::CheckAccept(const SequenceHandover& handover) const {
  if (handover.cache.fingerprint != impl_->fingerprint) {
    return Err(ErrorCode::kInvalidArgument,
               "the decode engine has another model, other kernels or another cache type");
  }
  if (handover.max_length > impl_->context) {
    return Err(ErrorCode::kContextLength,
               "the sequence may come to {} tokens, the decode engine's context holds {}",
               handover.max_length, impl_->context);
  }
  SequenceSpec spec;
  spec.tokens = handover.request.prompt;
  spec.n_prompt = std::ssize(spec.tokens);
  spec.max_length = handover.max_length;
  return impl_->loop->scheduler().CheckFits(spec);
}

void Engine::Accept(SequenceHandover handover) {
  const auto fail = [&handover](const Error& error) {
    handover.stream->Push({.cause = StopCause::kError, .error = error});
  };
  if (const Status can = CheckAccept(handover); !can) return fail(can.error());
  Result<std::unique_ptr<ActiveRequest>> active = impl_->Activate(handover.request);
  if (!active) return fail(active.error());
  ActiveRequest& request = **active;
  request.id = handover.stream->id();
  request.max_length = handover.max_length;
  request.asked = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(handover.age_seconds));
  request.stats = handover.stats;
  request.stream = handover.stream;
  impl_->loop->Accept(*std::move(active), std::move(handover));
}

Result<const Tokenizer*> Engine::tokenizer() const {
  if (impl_->text.tokenizer == nullptr) {
    return Err(ErrorCode::kNotFound, "{} has no tokenizer, so text cannot be read or written",
               impl_->config.model);
  }
  return impl_->text.tokenizer.get();
}

Result<const ChatTemplate*> Engine::chat_template() const {
  if (impl_->text.chat_template.empty()) {
    return Err(ErrorCode::kNotFound,
               "{} has no chat template; give one with --chat-template FILE, or continue a text "
               "with 'lucid run --raw'",
               impl_->config.model);
  }
  std::call_once(impl_->parse_template,
                 [this] { impl_->chat_template = ChatTemplate::Parse(impl_->text.chat_template); });
  if (!impl_->chat_template) return tl::unexpected<Error>(impl_->chat_template.error());
  return &*impl_->chat_template;
}

const Model& Engine::model() const {
  return impl_->model;
}
const Runner& Engine::runner() const {
  return *impl_->runner;
}
const KvLayout& Engine::kv_layout() const {
  return impl_->runner->kv().layout();
}
const EngineConfig& Engine::config() const {
  return impl_->config;
}
int64_t Engine::context() const {
  return impl_->context;
}
int64_t Engine::capacity() const {
  return impl_->capacity;
}
double Engine::load_seconds() const {
  return impl_->load_seconds;
}
uint64_t Engine::fingerprint() const {
  return impl_->fingerprint;
}

}  // namespace lucid
