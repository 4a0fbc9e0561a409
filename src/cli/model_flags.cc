#include "cli/model_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "base/env.h"
#include "base/huge_pages.h"
#include "base/log.h"
#include "base/numa.h"
#include "store/model_store.h"
#include "store/pack_cache.h"
#include "tensor/kv_type.h"

namespace lucid::cli {

namespace {

CLI::Validator KvTypeCheck() {
  std::vector<std::string> names;
  for (const KvType type : AllKvTypes()) names.emplace_back(Name(type));
  return CLI::IsMember(names);
}

}  // namespace

std::string KvTypeNames() {
  std::string names;
  for (const KvType type : AllKvTypes()) {
    names += (names.empty() ? "" : ", ") + std::string(Name(type));
  }
  return names;
}

void AddModelFlag(CLI::App& command, std::string& model) {
  command.add_option("-m,--model", model, "model: a file, a folder or a name of 'lucid models'")
      ->required();
}

void AddNumericsFlag(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--numerics", flags.numerics,
                  "default: exact sums of activations rounded to 15 bits, or to 8 where these do; "
                  "fast: always to 8, and for prompts with AVX512-VNNI weights too; with AMX, both "
                  "compute prompts alike, on tiles of bfloat16; float: float32 throughout")
      ->check(CLI::IsMember({"default", "fast", "float"}))
      ->capture_default_str();
}

void AddThreadsFlag(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("-t,--threads", flags.threads,
                  "threads of a step of one token; 0: one per physical core that this process may "
                  "use (its affinity mask, the CPU quota of its control group)")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void AddKvTypeFlags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--kv", flags.kv,
                  fmt::format("type of cached keys and values: {}", KvTypeNames()))
      ->check(KvTypeCheck())
      ->capture_default_str();
  command
      .add_option("--cache-type-k", flags.cache_type_k,
                  "type of cached keys where it differs from --kv (also -ctk)")
      ->check(KvTypeCheck());
  command
      .add_option("--cache-type-v", flags.cache_type_v,
                  "type of cached values where it differs from --kv (also -ctv)")
      ->check(KvTypeCheck());
}

void AddBackendFlags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--backend", flags.backend,
                  "cpu, or reference: naive float32 kernels, the definition of each op")
      ->check(CLI::IsMember({"cpu", "reference"}))
      ->capture_default_str();
  command.add_option(
      "--isa", flags.isa,
      "best instruction set that kernels may use: auto, amx, avx512bf16, avx512vnni, avx512, avx2, "
      "generic, on aarch64 auto, neondot, neon, generic (also LUCID_ISA)");
  AddNumericsFlag(command, flags);
  command.add_flag("--no-pack-cache", flags.no_pack_cache,
                   "pack the weights anew, and do not keep them for the next start (see lucid "
                   "pack)");
}

namespace {

// CLI11's own checks print ranges of 309 digits, and call a word a number out of range.
CLI::Validator Number(bool (*good)(double), std::string_view wanted) {
  const auto check = [good, wanted](std::string& text) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && stop == text.data() + text.size();
    return number && good(value) ? std::string() : fmt::format("'{}' is not {}", text, wanted);
  };
  return {check, ""};
}

CLI::Validator Positive() {
  return Number([](double v) { return v > 0 && std::isfinite(v); }, "a positive number");
}

// llama.cpp's words for "as the model says" are `none`.
CLI::Validator PositiveOr(double none) {
  return none == 0 ? Number([](double v) { return v >= 0 && std::isfinite(v); },
                            "a positive number (or 0: as the model says)")
                   : Number([](double v) { return (v > 0 && std::isfinite(v)) || v == -1; },
                            "a positive number (or -1: as the model says)");
}

}  // namespace

void AddRopeFlags(CLI::App& command, RopeOverrides& rope) {
  // By name, since CLI11 would print the numbers of an enum.
  const std::map<std::string, RopeSpec::Scaling> kinds = {{"none", RopeSpec::Scaling::kNone},
                                                          {"linear", RopeSpec::Scaling::kLinear},
                                                          {"ntk", RopeSpec::Scaling::kNtk},
                                                          {"yarn", RopeSpec::Scaling::kYarn}};
  command
      .add_option_function<std::string>(
          "--rope-scaling",
          [kinds, &rope](const std::string& name) { rope.scaling = kinds.at(name); },
          "how rotary positions are stretched: none, linear, ntk (theta times scale^(d/(d-2)), "
          "d dimensions), yarn; without it, as the model says")
      ->check(CLI::IsMember({"none", "linear", "ntk", "yarn"}));
  command.add_option("--rope-scale", rope.scale, "by which factor the context grows")
      ->check(Positive());
  command.add_option("--rope-freq-base", rope.freq_base, "base of the rotary frequencies, theta")
      ->check(Positive());
  command.add_option("--rope-freq-scale", rope.freq_scale, "the inverse of --rope-scale")
      ->check(Positive());
  command
      .add_option("--yarn-orig-ctx", rope.yarn_orig_ctx,
                  "yarn: the context before stretching; without it (or 0), what the model was "
                  "trained for")
      ->check(PositiveOr(0));
  command
      .add_option("--yarn-ext-factor", rope.yarn_ext_factor,
                  "yarn: weight of the frequencies that stay, 0 (none: linear) to 1; -1: as the "
                  "model says")
      ->check(Number([](double v) { return (v >= 0 && v <= 1) || v == -1; },
                     "a number from 0 to 1 (or -1: as the model says)"));
  command
      .add_option("--yarn-attn-factor", rope.yarn_attn_factor,
                  "yarn: times the factor of cosines and sines; -1: as the model says")
      ->check(Number([](double v) { return (v >= 0 && std::isfinite(v)) || v == -1; },
                     "a number of 0 or more (or -1: as the model says)"));
  command
      .add_option("--yarn-beta-slow", rope.yarn_beta_slow,
                  "yarn: frequencies of fewer turns in the original context are stretched; -1: as "
                  "the model says")
      ->check(PositiveOr(-1));
  command
      .add_option("--yarn-beta-fast", rope.yarn_beta_fast,
                  "yarn: frequencies of more turns in the original context stay; -1: as the model "
                  "says")
      ->check(PositiveOr(-1));
}

void AddPlacementFlags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--threads-batch", flags.threads_batch,
                  "threads of steps of several tokens, which prompts and several sequences give "
                  "(also -tb); 0: as --threads")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--numa", flags.numa,
                  "on machines whose CPUs have memory of their own: distribute, memory from all of "
                  "them in turn; isolate, only the CPUs beside the one where the command starts")
      ->check(CLI::IsMember({"distribute", "isolate"}));
  command
      .add_option("--huge-pages", flags.huge_pages,
                  "huge pages for packed weights: auto, where the system has them; on, an error "
                  "where it does not, and weights are packed at each load, since those of the pack "
                  "cache lie in a file's small pages; off, never")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
}

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  AddModelFlag(command, flags.model);
  AddRunFlags(command, flags);
}

void AddRunFlags(CLI::App& command, ModelFlags& flags) {
  AddThreadsFlag(command, flags);
  AddPlacementFlags(command, flags);
  command
      .add_option("-c,--ctx-size", flags.context,
                  "context in tokens; 0: what the model was trained for")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  AddRopeFlags(command, flags.rope);
  command.add_option("-b,--batch-size", flags.batch, "most tokens computed in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  AddBackendFlags(command, flags);
  AddKvTypeFlags(command, flags);
}

Result<EngineConfig> ToEngineConfig(const ModelFlags& flags) {
  EngineConfig config;
  LUCID_ASSIGN_OR_RETURN(config.model, ResolveModel(flags.model));
  if (!flags.numa.empty()) {
    LUCID_ASSIGN_OR_RETURN(
        const std::string done,
        UseNuma(flags.numa == "isolate" ? NumaMode::kIsolate : NumaMode::kDistribute));
    LogInfo("--numa {}: {}", flags.numa, done);
  }
  if (flags.huge_pages == "on") LUCID_RETURN_IF_ERROR(DemandHugePages("/"));
  if (flags.huge_pages == "off") LUCID_RETURN_IF_ERROR(ForbidHugePages());
  config.n_threads = flags.threads;
  config.n_threads_batch = flags.threads_batch;
  config.context = flags.context;
  config.rope = flags.rope;
  config.batch = flags.batch;
  config.backend = flags.backend == "reference" ? BackendKind::kReference : BackendKind::kCpu;
  config.isa = !flags.isa.empty() ? flags.isa : Env("LUCID_ISA").value_or("");
  config.numerics = flags.numerics == "fast"    ? Numerics::kFast
                    : flags.numerics == "float" ? Numerics::kFloat
                                                : Numerics::kDefault;
  if (!flags.no_pack_cache && flags.huge_pages != "on") config.pack_cache = PackCacheFolder();
  // The flags' checks admit only names that exist.
  config.cache_type_k = *KvTypeFromName(flags.cache_type_k.empty() ? flags.kv : flags.cache_type_k);
  config.cache_type_v = *KvTypeFromName(flags.cache_type_v.empty() ? flags.kv : flags.cache_type_v);
  return config;
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(EngineConfig config, ToEngineConfig(flags));
  config.n_parallel = 1;
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
