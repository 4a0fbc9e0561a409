#include "cli/model_flags.h"

#include <charconv>

#include "base/env.h"
#include "store/model_store.h"

namespace lucid::cli {

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("-m,--model", flags.model, "model: a file, a folder or a name of 'lucid models'")
      ->required();
  command.add_option("-t,--threads", flags.threads, "threads; 0: one per physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("-c,--ctx-size", flags.context,
                  "context in tokens; 0: what the model was trained for")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command.add_option("-b,--batch-size", flags.batch, "most prompt tokens computed in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  command
      .add_option("--backend", flags.backend,
                  "cpu, or reference: naive float32 kernels, the definition of each op")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  command.add_option(
      "--isa", flags.isa,
      "instruction set of the kernels: auto, avx512, avx2, generic (also LUCID_ISA)");
  command
      .add_option("--cache-type-k", flags.cache_type_k,
                  "element type of cached keys: f16, bf16, f32 (also -ctk)")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->capture_default_str();
  command
      .add_option("--cache-type-v", flags.cache_type_v,
                  "element type of cached values: f16, bf16, f32 (also -ctv)")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->capture_default_str();
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& flags) {
  EngineConfig config;
  LUCID_ASSIGN_OR_RETURN(config.model, ResolveModel(flags.model));
  config.n_threads = flags.threads;
  config.context = flags.context;
  config.batch = flags.batch;
  config.backend = flags.backend == "reference" ? BackendKind::kReference : BackendKind::kCpu;
  config.isa = !flags.isa.empty() ? flags.isa : Env("LUCID_ISA").value_or("");
  config.cache_type_k =
      *DTypeFromName(flags.cache_type_k);  // the flag's check admits only names that exist
  config.cache_type_v = *DTypeFromName(flags.cache_type_v);
  return Engine::Load(config);
}

Result<const ChatTemplate*> FindChatTemplate(const std::string& file, const Engine& engine,
                                             std::optional<ChatTemplate>& own) {
  if (file.empty()) return engine.chat_template();
  LUCID_ASSIGN_OR_RETURN(std::string source, ReadTextFile(file));
  Result<ChatTemplate> parsed = ChatTemplate::Parse(std::move(source));
  if (!parsed) return Err(parsed.error().code, "{}: {}", file, parsed.error().message);
  own = *std::move(parsed);
  return &*own;
}

Result<std::vector<TokenId>> ParseTokenIds(const std::string& list) {
  std::vector<TokenId> ids;
  size_t at = 0;
  while (at <= list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string piece = list.substr(at, end - at);
    piece.erase(0, piece.find_first_not_of(" \t\n"));
    piece.erase(piece.find_last_not_of(" \t\n") + 1);
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(piece.data(), piece.data() + piece.size(), id);
    if (error != std::errc() || stop != piece.data() + piece.size()) {
      return Err(ErrorCode::kInvalidArgument, "'{}' is not a token id", piece);
    }
    ids.push_back(id);
    at = end + 1;
  }
  return ids;
}

}  // namespace lucid::cli
