// Flags of the cache and the scheduler, for the commands in which they do something, and of how a
// request uses the cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "engine/engine.h"

namespace lucid::cli {

struct EngineFlags {
  int64_t kv_memory = 0;
  int64_t kv_block_size = EngineConfig().kv_block_size;
  bool no_prefix_cache = false, strict = false;
  int64_t swap_space = 0;
  std::string preemption = "recompute";
  int32_t parallel = 1;
  int64_t chunk = 0;
  int64_t max_queue = 1024;
  double itl_target_ms = 0;
};

// --kv-memory, --kv-block-size.
void AddCacheFlags(CLI::App& command, EngineFlags& flags);
// --no-prefix-cache, --strict: where a prompt may meet what earlier ones left in the cache.
void AddReuseFlags(CLI::App& command, EngineFlags& flags);
// --chunk; -np, --preemption and --swap-space: where several sequences run at once.
void AddChunkFlag(CLI::App& command, EngineFlags& flags);
CLI::Option* AddParallelFlags(CLI::App& command, EngineFlags& flags);
// --max-queue, --itl-target-ms: where requests come while others run.
void AddQueueFlags(CLI::App& command, EngineFlags& flags);

// kInvalidArgument for flags that contradict each other.
Result<EngineConfig> ToEngineConfig(const ModelFlags& model, const EngineFlags& flags);
Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& model, const EngineFlags& flags);

// How requests use the cache: --kv-policy, --kv-budget, --kv-audit.
struct RequestCacheFlags {
  std::string policy = "full";
  int64_t budget = 0;
  bool audit = false;
};
void AddRequestCacheFlags(CLI::App& command, RequestCacheFlags& flags);
void ApplyCacheFlags(const RequestCacheFlags& flags, Request& request);
// What can be said before a model is loaded: kInvalidArgument for settings that contradict each
// other, as Engine::Load and Submit would say.
Status CheckCacheFlags(const RequestCacheFlags& flags, const EngineFlags& engine);
// What needs the model: its cache has layers that can drop tokens, and of a type that can.
Status CheckCacheFlags(const RequestCacheFlags& flags, const Engine& engine);

// A flag whose value is a size as below. Its default is what `value` holds.
CLI::Option* AddByteSize(CLI::App& command, const char* name, int64_t& value, const char* help);

// "4096", "512M", "1GiB", "1.5G", "2GB" as bytes: K, M, G, T and KiB, MiB, GiB, TiB are powers of
// 1024, KB, MB, GB, TB powers of 1000. kInvalidArgument says so.
Result<int64_t> ParseByteSize(std::string_view text);

}  // namespace lucid::cli
