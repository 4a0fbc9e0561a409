#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/tokenizer_loader.h"
#include "format/safetensors.h"
#include "kv/kv_manager.h"
#include "text/detokenizer.h"

namespace lucid {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Rows of logits that Forward() computes in one step: enough to share the pass over the output
// matrix, small enough that a large vocabulary's rows stay within tens of megabytes.
constexpr int64_t kForwardChunk = 32;

// Positions in a cache block.
constexpr int64_t kBlockSize = 32;

Result<LoadedTokenizer> LoadTokenizerOf(const Model& model) {
  if (model.checkpoint->format() == Checkpoint::Format::kGguf) {
    return LoadTokenizer(static_cast<const GgufFile&>(*model.checkpoint));
  }
  return LoadTokenizer(static_cast<const SafetensorsCheckpoint&>(*model.checkpoint).folder());
}

// A submitted request with everything that its reply needs.
struct Running {
  RequestId id = 0;
  Request request;
  SamplerChain sampler;
  StopMatcher stop;
  std::optional<Detokenizer> detokenizer;  // none where the model has no tokenizer
  std::vector<TokenId> reply;
  int64_t next_position = 0;  // first position that is not in the cache yet
  bool started = false;
  RequestStats stats;
  Clock::time_point first_token;

  RequestStats StatsNow() const {
    RequestStats now = stats;
    now.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    now.generated_tokens = static_cast<int64_t>(reply.size());
    if (!reply.empty()) now.decode_seconds = SecondsSince(first_token);
    return now;
  }
};

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
  std::optional<ChatTemplate> chat_template;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvManager> kv;
  SequenceHandle sequence = 0;
  int64_t context = 0;
  double load_seconds = 0;

  std::deque<std::unique_ptr<Running>> queue;  // the front one runs
  RequestId last_id = 0;
  std::vector<TokenId> cached;  // tokens whose keys and values the cache holds, from position 0
  Batch batch;

  Status CheckPrompt(std::span<const TokenId> prompt) const;
  void Start(Running& r);
  void RunChunk(std::span<const TokenId> tokens, int64_t first, bool all_outputs,
                Observer* observer);
  Result<TokenOutput> Sample(Running& r);
  bool EndsReply(const Running& r, TokenId id) const;
  StopCause FindCause(const Running& r, TokenId id) const;
};

Status Engine::Impl::CheckPrompt(std::span<const TokenId> prompt) const {
  if (prompt.empty()) return Err(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  for (const TokenId id : prompt) {
    if (id < 0 || id >= model.config.vocab_size) {
      return Err(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id,
                 model.config.vocab_size);
    }
  }
  if (static_cast<int64_t>(prompt.size()) > context) {
    return Err(ErrorCode::kContextLength, "the prompt has {} tokens, the context holds {}",
               prompt.size(), context);
  }
  return {};
}

// Keeps what the cache already has of this prompt; the last token is computed again, since its
// logits are needed.
void Engine::Impl::Start(Running& r) {
  const std::vector<TokenId>& prompt = r.request.prompt;
  const size_t most = std::min(cached.size(), prompt.size() - 1);
  size_t shared = 0;
  while (shared < most && cached[shared] == prompt[shared]) ++shared;
  cached.resize(shared);
  r.next_position = static_cast<int64_t>(shared);
  r.stats.cached_tokens = r.next_position;
  r.started = true;
}

void Engine::Impl::RunChunk(std::span<const TokenId> tokens, int64_t first, bool all_outputs,
                            Observer* observer) {
  const Status room = kv->Reserve(sequence, first + static_cast<int64_t>(tokens.size()));
  LUCID_CHECK(room.has_value(), "Submit admitted more than the context");
  batch.Clear();
  batch.AddSequence(kv->Blocks(sequence));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool last = i + 1 == tokens.size();
    batch.AddToken(tokens[i], first + static_cast<int64_t>(i), all_outputs || last);
  }
  runner->Run(batch, observer);
  cached.resize(static_cast<size_t>(first));
  cached.insert(cached.end(), tokens.begin(), tokens.end());
}

bool Engine::Impl::EndsReply(const Running& r, TokenId id) const {
  return !r.request.ignore_eos && text.tokenizer != nullptr &&
         text.tokenizer->IsEndOfGeneration(id);
}

StopCause Engine::Impl::FindCause(const Running& r, TokenId id) const {
  if (EndsReply(r, id)) return StopCause::kEndOfGeneration;
  if (r.stop.stopped()) return StopCause::kStopString;
  const auto generated = static_cast<int64_t>(r.reply.size());
  if (r.request.max_tokens >= 0 && generated >= r.request.max_tokens) return StopCause::kLength;
  // The newest token needs a place too before another can follow.
  if (static_cast<int64_t>(r.request.prompt.size()) + generated >= context)
    return StopCause::kLength;
  return StopCause::kNone;
}

Result<TokenOutput> Engine::Impl::Sample(Running& r) {
  std::span<const float> logits = runner->Logits(0);
  // Some output matrices are padded beyond the vocabulary; an id without a piece must not be drawn.
  if (text.tokenizer != nullptr) {
    logits = logits.first(std::min(logits.size(), static_cast<size_t>(text.tokenizer->n_tokens())));
  }
  TokenOutput out;
  out.request = r.id;
  SampleReport report;
  const uint64_t position = r.request.prompt.size() + r.reply.size();
  LUCID_ASSIGN_OR_RETURN(
      out.id, r.sampler.Sample(logits, r.request.prompt, r.reply, r.request.rng_stream, position,
                               r.request.explain ? &report : nullptr));
  if (r.request.explain) out.explain = std::move(report);
  if (r.request.n_logprobs >= 0) out.logprobs = RawLogprobs(logits, out.id, r.request.n_logprobs);
  if (r.reply.empty()) r.first_token = Clock::now();
  r.reply.push_back(out.id);

  if (r.detokenizer && !EndsReply(r, out.id)) out.text = r.stop.Add(r.detokenizer->Add(out.id));
  out.cause = FindCause(r, out.id);
  if (out.cause == StopCause::kNone) return out;
  if (r.detokenizer && !r.stop.stopped()) {
    out.text += r.stop.Add(r.detokenizer->Finish());
    if (!r.stop.stopped()) out.text += r.stop.Finish();
  }
  out.stats = r.StatsNow();
  return out;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineConfig& config) {
  const Clock::time_point start = Clock::now();
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  if (config.batch < 1 || config.batch > 65536) {
    return Err(ErrorCode::kInvalidArgument, "the batch size is {}, must be 1 to 65536",
               config.batch);
  }
  if (config.n_threads < 0 || config.n_threads > 1024) {
    return Err(ErrorCode::kInvalidArgument, "the number of threads is {}, must be 0 to 1024",
               config.n_threads);
  }
  LUCID_ASSIGN_OR_RETURN(impl->model, LoadModel(config.model));
  // A model without a tokenizer still computes logits; a tokenizer that is there must be valid.
  Result<LoadedTokenizer> text = LoadTokenizerOf(impl->model);
  if (text) {
    impl->text = *std::move(text);
  } else if (text.error().code != ErrorCode::kNotFound) {
    return tl::unexpected<Error>(text.error());
  }
  impl->context = config.context > 0 ? config.context : impl->model.config.context_length;
  if (config.context < 0 || impl->context > int64_t{1} << 30) {
    return Err(ErrorCode::kInvalidArgument, "a context of {} is out of range, which is 1 to {}",
               config.context < 0 ? config.context : impl->context, int64_t{1} << 30);
  }
  if (impl->context > impl->model.config.context_length) {
    LogWarn("the context of {} is longer than the {} tokens the model was trained for",
            impl->context, impl->model.config.context_length);
  }
  RunnerOptions options;
  options.backend = config.backend;
  options.isa = config.isa;
  options.n_threads = config.n_threads;
  options.max_tokens = std::max(std::min(config.batch, impl->context), kForwardChunk);
  options.max_outputs = kForwardChunk;
  options.kv.block_size = kBlockSize;
  options.kv.n_blocks = ContiguousKv::BlockCount(1, impl->context, kBlockSize);
  options.kv.k_dtype = config.cache_type_k;
  options.kv.v_dtype = config.cache_type_v;
  LUCID_ASSIGN_OR_RETURN(impl->runner, Runner::Create(impl->model, options));
  impl->kv = std::make_unique<ContiguousKv>(1, impl->context, kBlockSize);
  LUCID_ASSIGN_OR_RETURN(impl->sequence, impl->kv->Open());
  impl->load_seconds = SecondsSince(start);
  LogInfo(
      "{}: {}, {} layers, {:.1f} MB, context {}, {} threads, cache {:.1f} MB at full context, "
      "loaded in {:.3f} s",
      config.model, impl->model.config.arch, impl->model.config.n_layers,
      static_cast<double>(impl->model.checkpoint->file_bytes()) / 1e6, impl->context,
      impl->runner->n_threads(),
      static_cast<double>(options.kv.n_blocks * impl->runner->kv().bytes_per_block()) / 1e6,
      impl->load_seconds);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<RequestId> Engine::Submit(Request request) {
  LUCID_RETURN_IF_ERROR(impl_->CheckPrompt(request.prompt));
  if (static_cast<int64_t>(request.prompt.size()) >= impl_->context) {
    return Err(ErrorCode::kContextLength,
               "the prompt has {} tokens, which leaves no room for a reply in a context of {}",
               request.prompt.size(), impl_->context);
  }
  LUCID_ASSIGN_OR_RETURN(SamplerChain sampler, SamplerChain::Create(request.sampling));
  LUCID_ASSIGN_OR_RETURN(StopMatcher stop, StopMatcher::Create(request.stop));
  std::optional<Detokenizer> detokenizer;
  if (impl_->text.tokenizer != nullptr) {
    detokenizer.emplace(*impl_->text.tokenizer, /*skip_special=*/true, /*at_start=*/false);
  }
  impl_->queue.push_back(std::make_unique<Running>(Running{.id = ++impl_->last_id,
                                                           .request = std::move(request),
                                                           .sampler = std::move(sampler),
                                                           .stop = std::move(stop),
                                                           .detokenizer = std::move(detokenizer),
                                                           .reply = {},
                                                           .next_position = 0,
                                                           .started = false,
                                                           .stats = {},
                                                           .first_token = {}}));
  return impl_->last_id;
}

Result<std::vector<TokenOutput>> Engine::Step(Observer* observer) {
  std::vector<TokenOutput> outputs;
  if (impl_->queue.empty()) return outputs;
  Running& r = *impl_->queue.front();
  if (!r.started) impl_->Start(r);

  const Clock::time_point start = Clock::now();
  const auto n_prompt = static_cast<int64_t>(r.request.prompt.size());
  const bool prefill = r.next_position < n_prompt;
  if (r.request.max_tokens == 0) {  // nothing wanted: end before any work
    TokenOutput out;
    out.request = r.id;
    out.cause = StopCause::kLength;
    out.stats = r.StatsNow();
    outputs.push_back(std::move(out));
    impl_->queue.pop_front();
    return outputs;
  }
  if (prefill) {
    const int64_t n = std::min(impl_->config.batch, n_prompt - r.next_position);
    const std::span<const TokenId> chunk{r.request.prompt.data() + r.next_position,
                                         static_cast<size_t>(n)};
    impl_->RunChunk(chunk, r.next_position, /*all_outputs=*/false, observer);
    r.next_position += n;
    r.stats.prefill_seconds += SecondsSince(start);
    if (r.next_position < n_prompt) return outputs;
  } else {
    impl_->RunChunk({&r.reply.back(), 1}, r.next_position, /*all_outputs=*/false, observer);
    ++r.next_position;
  }
  Result<TokenOutput> out = impl_->Sample(r);
  if (!out) {
    impl_->queue.pop_front();
    return tl::unexpected<Error>(out.error());
  }
  const bool ended = out->cause != StopCause::kNone;
  outputs.push_back(*std::move(out));
  if (ended) impl_->queue.pop_front();
  return outputs;
}

RequestStats Engine::Abort(RequestId id) {
  const auto found = std::find_if(impl_->queue.begin(), impl_->queue.end(),
                                  [id](const std::unique_ptr<Running>& r) { return r->id == id; });
  if (found == impl_->queue.end()) return {};
  const RequestStats stats = (*found)->StatsNow();
  impl_->queue.erase(found);
  return stats;
}

bool Engine::busy() const {
  return !impl_->queue.empty();
}

Status Engine::Forward(std::span<const TokenId> tokens, Observer* observer,
                       const std::function<void(int64_t, int64_t)>& on_rows) {
  LUCID_RETURN_IF_ERROR(impl_->CheckPrompt(tokens));
  impl_->cached.clear();
  const auto chunk = static_cast<size_t>(std::min(impl_->config.batch, kForwardChunk));
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const size_t n = std::min(chunk, tokens.size() - first);
    impl_->RunChunk(tokens.subspan(first, n), static_cast<int64_t>(first), /*all_outputs=*/true,
                    observer);
    on_rows(static_cast<int64_t>(first), static_cast<int64_t>(n));
  }
  return {};
}

std::span<const float> Engine::LogitsRow(int64_t i) const {
  return impl_->runner->Logits(i);
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
  if (!impl_->chat_template) {
    LUCID_ASSIGN_OR_RETURN(impl_->chat_template, ChatTemplate::Parse(impl_->text.chat_template));
  }
  return &*impl_->chat_template;
}

const Model& Engine::model() const {
  return impl_->model;
}
const Runner& Engine::runner() const {
  return *impl_->runner;
}
const EngineConfig& Engine::config() const {
  return impl_->config;
}
int64_t Engine::context() const {
  return impl_->context;
}
double Engine::load_seconds() const {
  return impl_->load_seconds;
}

}  // namespace lucid
