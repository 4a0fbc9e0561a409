#include "explain/subject.h"

#include <fmt/format.h>

#include <algorithm>

#include "account/units.h"
#include "base/topology.h"
#include "engine/tokenizer_loader.h"
#include "models/outline.h"
#include "text/unicode.h"

namespace lucid {
namespace {

constexpr int64_t kUsualContext = 2048;
constexpr int64_t kMostPromptTokens = 96;  // whose rows of logits and maps fit a page
constexpr int64_t kReplyTokens = 8;

// Ids that every vocabulary has, some of them twice.
std::vector<TokenId> MadeUpIds(int64_t vocab) {
  std::vector<TokenId> ids;
  for (const int64_t id : {5, 17, 42, 17, 9, 63, 28, 11}) {
    ids.push_back(static_cast<TokenId>(id % vocab));
  }
  return ids;
}

// The attention weights of a step, and the keys of one layer.
class AttentionRecorder final : public Observer {
 public:
  explicit AttentionRecorder(int32_t layer) : layer_(layer) {}

  void AfterOp(const ObservedOp& observed) override {
    tap_.AfterOp(observed);
    if (observed.op.kind != OpKind::kKvStore) return;
    if (observed.plan.Info(observed.op.inputs[0]).kv_layer != layer_) return;
    const std::span<const float> keys = observed.Read(observed.op.inputs[1]);
    keys_.insert(keys_.end(), keys.begin(), keys.end());
  }
  PromptAttention Take() { return {tap_.maps(), std::move(keys_)}; }

 private:
  int32_t layer_;
  AttentionTap tap_;
  std::vector<float> keys_;
};

}  // namespace

Result<std::unique_ptr<Subject>> Subject::Open(SubjectOptions options) {
  std::unique_ptr<Subject> subject(new Subject());
  LUCID_ASSIGN_OR_RETURN(subject->model_,
                         LoadHeaders(options.engine.model, options.type, options.engine.rope));
  const Model& model = subject->model_;
  if (model.checkpoint != nullptr) {
    Result<LoadedTokenizer> loaded = LoadTokenizerOf(*model.checkpoint);
    if (loaded) {
      subject->tokenizer_ = std::move(loaded->tokenizer);
    } else if (loaded.error().code != ErrorCode::kNotFound) {
      return tl::unexpected<Error>(loaded.error());
    }
  }
  subject->ids_ = subject->tokenizer_ != nullptr ? subject->tokenizer_->Encode(options.prompt)
                                                 : MadeUpIds(model.config.vocab_size);
  if (subject->ids_.empty() || std::ssize(subject->ids_) > kMostPromptTokens) {
    return Err(ErrorCode::kInvalidArgument,
               "the prompt has {} tokens; pages show 1 to {}: choose another with -p",
               subject->ids_.size(), kMostPromptTokens);
  }
  subject->context_ = options.engine.context > 0
                          ? options.engine.context
                          : std::min(kUsualContext, model.config.context_length);
  for (const LedgerWeight& weight : ListWeights(model.plan, model.weights.dtypes())) {
    subject->params_ += weight.params;
    subject->weight_bytes_ += weight.bytes;
  }
  subject->options_ = std::move(options);
  return subject;
}

Workload Subject::types() const {
  Workload types;
  types.k_type = options_.engine.cache_type_k;
  types.v_type = options_.engine.cache_type_v;
  types.kv_block_size = options_.engine.kv_block_size;
  types.weight_dtypes = model_.weights.dtypes();
  return types;
}

int64_t Subject::streamed_bytes() const {
  return StreamedBytes(model_.plan, model_.weights.dtypes());
}

std::string Subject::Describe() const {
  return fmt::format("Numbers of {}: {}, {} layers, {} parameters, {} of weights.", options_.name,
                     model_.config.arch, model_.config.n_layers, units::Thousands(params_),
                     units::Bytes(static_cast<double>(weight_bytes_)));
}

std::string Subject::Label(TokenId id) const {
  if (tokenizer_ == nullptr) return fmt::format("#{}", id);
  const bool special = tokenizer_->IsSpecial(id);
  const std::string_view bytes = special ? tokenizer_->PieceText(id) : tokenizer_->PieceBytes(id);
  std::string label;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, at);
    if (c.code == ' ') {
      label += '_';
    } else if (c.code == '\n') {
      label += "\\n";
    } else if (c.code < 0 || IsControl(c.code)) {
      for (const char byte : bytes.substr(at, c.length)) {
        label += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    } else {
      label += bytes.substr(at, c.length);
    }
    at += c.length;
  }
  return label;
}

std::vector<std::string> Subject::Labels() const {
  std::vector<std::string> labels;
  for (const TokenId id : ids_) labels.push_back(Label(id));
  return labels;
}

Result<Engine*> Subject::engine() {
  if (engine_ == nullptr) {
    if (!has_weights()) {
      return Err(ErrorCode::kUnsupported, "{} is a config.json: there are no weights to run",
                 options_.engine.model);
    }
    EngineConfig config = options_.engine;
    const int64_t needed = kMostPromptTokens + kReplyTokens + 1;
    config.context = std::min(std::max<int64_t>(needed, 256), model_.config.context_length);
    config.n_parallel = 2;
    config.logit_rows = kMostPromptTokens;  // a prompt is one step
    LUCID_ASSIGN_OR_RETURN(engine_, Engine::Load(config));
  }
  return engine_.get();
}

Result<const PromptRun*> Subject::run() {
  if (run_) return &*run_;
  LUCID_ASSIGN_OR_RETURN(Engine * engine, this->engine());
  PromptRun run;
  Request request;
  request.prompt = ids_;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  request.max_tokens = std::min(kReplyTokens, engine->context() - std::ssize(ids_));
  request.logits_from = 0;
  request.on_logits = [&](int64_t position, std::span<const float> row) {
    if (position < std::ssize(ids_)) run.logits.emplace_back(row.begin(), row.end());
  };
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine->Submit(std::move(request)));
  while (const std::optional<TokenOutput> out = stream.Next()) {
    if (out->error) return tl::unexpected<Error>(*out->error);
    if (out->id >= 0) run.reply.push_back(out->id);
    if (out->cause != StopCause::kNone) run.stats = out->stats;
  }
  run_ = std::move(run);
  return &*run_;
}

Result<const PromptAttention*> Subject::attention() {
  if (attention_) return &*attention_;
  LUCID_ASSIGN_OR_RETURN(Engine * engine, this->engine());
  AttentionRecorder recorder(static_cast<int32_t>(model_.plan.kv_layers.size() / 2));
  Request request;
  request.prompt = ids_;
  request.max_tokens = 0;
  request.logits_from = 0;  // all positions are computed, whatever the cache has
  request.on_logits = [](int64_t, std::span<const float>) {};
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine->Submit(std::move(request)));
  while (engine->Step(&recorder)) {
  }
  while (const std::optional<TokenOutput> out = stream.TryNext()) {
    if (out->error) return tl::unexpected<Error>(*out->error);
  }
  attention_ = recorder.Take();
  return &*attention_;
}

Result<const Hardware*> Subject::hardware() {
  if (hardware_) return &*hardware_;
  const int threads =
      options_.engine.n_threads > 0 ? options_.engine.n_threads : PhysicalCoreCount();
  const bool eight_bits = options_.engine.numerics == Numerics::kFast;
  if (options_.hardware == "this") {
    PeakSource source = PeakSource::Open(options_.say);
    LUCID_ASSIGN_OR_RETURN(hardware_, source.ThisMachine(threads, streamed_bytes(), eight_bits));
  } else {
    LUCID_ASSIGN_OR_RETURN(hardware_,
                           FindHardware(options_.hardware, threads, streamed_bytes(), eight_bits));
  }
  return &*hardware_;
}

}  // namespace lucid
