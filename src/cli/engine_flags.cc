#include "cli/engine_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

namespace lucid::cli {
namespace {

// Replaces the text by a number of bytes, or says what is wrong with it.
std::string ByteSizeToNumber(std::string& text) {
  const Result<int64_t> bytes = ParseByteSize(text);
  if (!bytes) return bytes.error().message;
  text = fmt::format("{}", *bytes);
  return "";
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const KvPolicy policy : AllKvPolicies()) names.emplace_back(Name(policy));
  return names;
}

}  // namespace

CLI::Option* AddByteSize(CLI::App& command, const char* name, int64_t& value, const char* help) {
  return command.add_option(name, value, help)
      ->transform(CLI::Validator(ByteSizeToNumber, ""))
      ->type_name("BYTES")
      ->capture_default_str();
}

void AddCacheFlags(CLI::App& command, EngineFlags& flags) {
  AddByteSize(
      command, "--kv-memory", flags.kv_memory,
      "memory of the KV cache, such as 512M or 2G; 0: room for what may run at once and one "
      "more context, at most half of what is free");
  command.add_option("--kv-block-size", flags.kv_block_size, "tokens in a block of the cache")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
}

void AddReuseFlags(CLI::App& command, EngineFlags& flags) {
  CLI::Option* none = command.add_flag("--no-prefix-cache", flags.no_prefix_cache,
                                       "compute every prompt anew instead of finding its beginning "
                                       "in the cache");
  command
      .add_flag("--strict", flags.strict,
                "find only prompts in the cache, never generated text: a reply then has the same "
                "bits whatever ran before")
      ->excludes(none);
}

void AddChunkFlag(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--chunk", flags.chunk,
                  "most prompt tokens in one step; 0: as many as --batch-size")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}))
      ->capture_default_str();
}

CLI::Option* AddParallelFlags(CLI::App& command, EngineFlags& flags) {
  CLI::Option* parallel =
      command
          .add_option("--parallel", flags.parallel, "most sequences that run at once (also -np)")
          ->check(CLI::Range(1, 4096));
  command
      .add_option("--preemption", flags.preemption,
                  "where memory runs out, sequences give up their place and are recomputed, or are "
                  "kept in the swap space: recompute or swap")
      ->check(CLI::IsMember({"recompute", "swap"}))
      ->capture_default_str();
  AddByteSize(command, "--swap-space", flags.swap_space,
              "memory for sequences that are swapped out, such as 512M or 2G");
  return parallel;
}

void AddQueueFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--max-queue", flags.max_queue, "most requests that wait beside those that run")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--itl-target-ms", flags.itl_target_ms,
                  "cut prompts so that a step with running replies takes no longer; 0: no target")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

Result<EngineConfig> ToEngineConfig(const ModelFlags& model, const EngineFlags& flags) {
  if (flags.chunk > model.batch) {
    return Err(ErrorCode::kInvalidArgument,
               "--chunk {} is more than --batch-size {}, the most tokens of a step", flags.chunk,
               model.batch);
  }
  if (flags.swap_space > 0 && flags.preemption != "swap") {
    return Err(ErrorCode::kInvalidArgument, "--swap-space does nothing without --preemption swap");
  }
  LUCID_ASSIGN_OR_RETURN(EngineConfig config, ToEngineConfig(model));
  config.kv_memory = flags.kv_memory;
  config.kv_block_size = flags.kv_block_size;
  config.prefix_sharing = !flags.no_prefix_cache;
  config.strict = flags.strict;
  config.swap_memory = flags.swap_space;
  config.preemption =
      flags.preemption == "swap" ? PreemptionMode::kSwap : PreemptionMode::kRecompute;
  config.n_parallel = flags.parallel;
  config.chunk = flags.chunk;
  config.max_queue = flags.max_queue;
  config.itl_target_ms = flags.itl_target_ms;
  return config;
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& model, const EngineFlags& flags) {
  LUCID_ASSIGN_OR_RETURN(const EngineConfig config, ToEngineConfig(model, flags));
  return Engine::Load(config);
}

void AddRequestCacheFlags(CLI::App& command, RequestCacheFlags& flags) {
  command
      .add_option("--kv-policy", flags.policy,
                  "what a bounded cache keeps: full (everything), window_sink (first and newest "
                  "tokens), h2o (most attended and newest), snapkv (what the prompt's end attends "
                  "to)")
      ->check(CLI::IsMember(PolicyNames()))
      ->capture_default_str();
  command
      .add_option(
          "--kv-budget", flags.budget,
          "tokens that the cache keeps under such a policy; snapkv bounds the prompt's only, "
          "the reply comes on top")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command.add_flag("--kv-audit", flags.audit,
                   "also compute the reply with the full cache, and report how far the "
                   "distributions lie apart");
}

void ApplyCacheFlags(const RequestCacheFlags& flags, Request& request) {
  request.eviction.policy = *KvPolicyFromName(flags.policy);  // the flag's check admits only names
  request.eviction.budget = flags.budget;
  request.kv_audit = flags.audit;
}

Status CheckCacheFlags(const RequestCacheFlags& flags, const EngineFlags& engine) {
  const KvPolicy policy = *KvPolicyFromName(flags.policy);
  if (policy == KvPolicy::kFull) {
    if (flags.budget == 0 && !flags.audit) return {};
    return Err(ErrorCode::kInvalidArgument,
               "{} needs a --kv-policy that evicts: window_sink, h2o or snapkv",
               flags.audit ? "--kv-audit" : "--kv-budget");
  }
  const int64_t least = LeastBudget(policy, engine.kv_block_size);
  if (flags.budget >= least) return {};
  return Err(
      ErrorCode::kInvalidArgument,
      "--kv-policy {} needs a --kv-budget of at least {} tokens where --kv-block-size is {}, "
      "not {}",
      flags.policy, least, engine.kv_block_size, flags.budget);
}

Status CheckCacheFlags(const RequestCacheFlags& flags, const Engine& engine) {
  return CheckEviction({.policy = *KvPolicyFromName(flags.policy), .budget = flags.budget},
                       engine.kv_layout());
}

Result<int64_t> ParseByteSize(std::string_view text) {
  const auto wrong = [text] {
    return Err(ErrorCode::kInvalidArgument,
               "'{}' is not a size in bytes such as 4096, 512M, 2G, 1.5GiB (powers of 1024) or 2GB "
               "(of 1000)",
               text);
  };
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return wrong();
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double scale = 1;
  if (!unit.empty() && unit != "B") {
    constexpr std::string_view kPrefixes = "KMGT";
    const char prefix = unit[0] == 'k' ? 'K' : unit[0];
    const size_t power = kPrefixes.find(prefix);
    if (power == std::string_view::npos) return wrong();
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return wrong();
    scale = std::pow(unit == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = number * scale;
  if (bytes > 0x1p50) {
    return Err(ErrorCode::kInvalidArgument, "'{}' is more than any machine's memory, 1024T", text);
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace lucid::cli
