#include "engine/selftest.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>

#include "base/buffer.h"
#include "engine/engine.h"
#include "engine/selftest_model.h"
#include "engine/selftest_text.h"
#include "engine/tokenizer_loader.h"
#include "kernels/table.h"
#include "models/load.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

// The reference executor takes about a second for a billion weights and a token.
constexpr double kReferenceWork = 3e10;
constexpr int64_t kLeastTokens = 8, kMostTokens = 128;
// What has to be read for CheckInvariance: no multiple of a block or a chunk.
constexpr int64_t kInvariancePrompt = 77;

int64_t TokensFor(const Model& model) {
  double weights = 0;
  for (const Value v : model.plan.Weights())
    weights += static_cast<double>(model.weights[v].elements());
  const auto affordable = static_cast<int64_t>(kReferenceWork / std::max(weights, 1.0));
  const int64_t n = std::clamp(affordable, kLeastTokens, kMostTokens);
  return model.config.context_length > 1 ? std::min(n, model.config.context_length - 1) : n;
}

// The beginning of the text that comes with the program; of a model without tokenizer random ids.
std::vector<TokenId> TextFor(const Engine& engine, int64_t tokens, uint64_t seed) {
  const auto n = static_cast<size_t>(tokens);
  const Tokenizer* tokenizer = engine.tokenizer().value_or(nullptr);
  std::vector<TokenId> ids;
  if (tokenizer != nullptr) ids = tokenizer->Encode(SelftestText());
  std::mt19937_64 random(seed);
  const auto vocab = static_cast<uint64_t>(engine.model().config.vocab_size);
  while (ids.size() < n) ids.push_back(static_cast<TokenId>(random() % vocab));
  ids.resize(n);
  return ids;
}

Result<ScoredText> LoadAndScore(const EngineConfig& config, const std::vector<TokenId>& ids) {
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(config));
  return ScoreAsBothPhases(*engine, ids);
}

Status CheckText(const SelftestOptions& options, const Engine& engine, const CheckReport& report) {
  const Result<const Tokenizer*> tokenizer = engine.tokenizer();
  if (!tokenizer) {
    if (!options.tokenizer_json.empty()) {
      return Err(ErrorCode::kInvalidArgument, "{} is to be compared with a tokenizer, but {}",
                 options.tokenizer_json, tokenizer.error().message);
    }
    report({"tokenizer", CheckState::kSkipped, tokenizer.error().message});
    return {};
  }
  report(CheckTokenizer(**tokenizer, options.texts, options.seed));
  std::string other = options.tokenizer_json;
  const fs::path model = options.engine.model;
  if (other.empty() && model.extension() == ".gguf" &&
      fs::exists(model.parent_path() / "tokenizer.json")) {
    other = (model.parent_path() / "tokenizer.json").string();
  }
  if (other.empty()) {
    report({"tokenizer.json", CheckState::kSkipped, "none to compare with (--tokenizer-json)"});
  } else {
    LUCID_ASSIGN_OR_RETURN(const LoadedTokenizer loaded, LoadTokenizer(other));
    report(CheckSameIds(**tokenizer, *loaded.tokenizer, other, options.texts, options.seed));
  }
  const Result<const ChatTemplate*> chat_template = engine.chat_template();
  report(chat_template
             ? CheckChatTemplate(**chat_template, **tokenizer)
             : SelfCheck{"chat template", CheckState::kSkipped, chat_template.error().message});
  return {};
}

// What the engine of the options finds, and the rows that others are compared with.
struct OwnRun {
  std::vector<TokenId> ids;
  ScoredText scored;
};
Result<OwnRun> CheckOwnEngine(const SelftestOptions& options, const EngineConfig& config,
                              const CheckReport& report) {
  const int64_t before = Buffer::LiveBytes();
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(config));
  int64_t taken = Buffer::LiveBytes() - before;
  const PackedWeights& packed = engine->runner().packed();
  if (!packed.file().empty()) taken += static_cast<int64_t>(packed.bytes());  // mapped, not taken
  LUCID_RETURN_IF_ERROR(CheckText(options, *engine, report));
  report(CheckMemory(*engine, taken));
  OwnRun own;
  const int64_t prompt =
      std::clamp<int64_t>(engine->context() - kSelftestReply, 1, kInvariancePrompt);
  LUCID_ASSIGN_OR_RETURN(const SelfCheck same,
                         CheckInvariance(*engine, TextFor(*engine, prompt, options.seed)));
  report(same);
  own.ids = TextFor(*engine, TokensFor(engine->model()), options.seed);
  LUCID_ASSIGN_OR_RETURN(own.scored, ScoreAsBothPhases(*engine, own.ids));
  engine->FinishPackCache();  // other engines of this check map them
  return own;
}

}  // namespace

Status RunSelftest(const SelftestOptions& options, const CheckReport& report) {
  EngineConfig config = options.engine;
  {
    LUCID_ASSIGN_OR_RETURN(const Model model,
                           LoadModel(config.model, config.rope, Contents::kNone));
    config.n_parallel = kSelftestCompany;
    config.context = std::max(TokensFor(model), kInvariancePrompt) + kSelftestReply;
    if (const int64_t most = model.config.context_length; most > 0) {
      config.context = std::min(config.context, most);
    }
  }
  LUCID_ASSIGN_OR_RETURN(const OwnRun own, CheckOwnEngine(options, config, report));

  EngineConfig plain = config;
  plain.backend = BackendKind::kReference;
  LUCID_ASSIGN_OR_RETURN(const ScoredText reference, LoadAndScore(plain, own.ids));
  report(CompareWithReference(own.scored, reference, config.numerics));
  if (config.backend == BackendKind::kCpu) {
    LUCID_ASSIGN_OR_RETURN(const std::vector<const KernelTable*> tables, SelectTables(config.isa));
    for (const KernelTable* table : tables) {
      if (table->isa == reference.isa || table->isa == own.scored.isa) continue;
      EngineConfig other = config;
      other.isa = std::string(table->isa);
      LUCID_ASSIGN_OR_RETURN(const ScoredText scored, LoadAndScore(other, own.ids));
      report(CompareWithReference(scored, reference, config.numerics));
    }
  }
  report(ComparePerplexity(own.scored, reference, own.ids));
  return {};
}

}  // namespace lucid
