// EngineConfig: everything that is decided when a model is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "exec/runner.h"
#include "plan/rope_overrides.h"
#include "sched/scheduler.h"
#include "tensor/kv_type.h"

namespace lucid {

struct EngineConfig {
  std::string model = {};   // a path: .gguf, .safetensors or a Hugging Face folder
  int n_threads = 0;        // of a step of one token; 0: one per physical core
  int n_threads_batch = 0;  // of any other step; 0: as n_threads
  int64_t context = 0;      // positions of a sequence; 0: what the model was trained for
  RopeOverrides rope = {};  // changes of the model's rotary positions
  int64_t batch = 512;      // most tokens computed in one step
  BackendKind backend = BackendKind::kCpu;
  std::string isa = {};  // "" or "auto": the best this CPU has
  Numerics numerics = Numerics::kDefault;
  // A folder in which packed weights are kept for the next start ("lucid pack --help"), as
  // PackCacheFolder() of store/pack_cache.h; "": they are packed at each load.
  std::string pack_cache = {};

  // The cache.
  KvType cache_type_k = KvType::kF16;
  KvType cache_type_v = KvType::kF16;
  int64_t kv_block_size = 32;  // positions in a block
  int64_t kv_memory = 0;       // bytes, taken at load; 0: room for n_parallel + 1 full contexts, at
                               // most half of the memory that is available, taken as it is written
  int64_t swap_memory = 0;     // bytes for sequences that are preempted by swapping
  bool prefix_sharing = true;
  bool strict = false;  // a prompt never reuses cache blocks of generated tokens

  // Scheduling.
  int32_t n_parallel = 16;   // most sequences that run at once
  int64_t max_queue = 1024;  // most requests that wait; one more is refused
  int64_t chunk = 0;         // most prompt tokens in a step; 0: batch
  // Most rows of a prompt's logits in a step (Request::logits_from): enough to share the pass over
  // the output matrix, small enough that a large vocabulary's rows stay within tens of megabytes.
  // What scores texts wants more, and gets them up to 512 MiB.
  int64_t logit_rows = 32;
  double itl_target_ms = 0;  // > 0: prompts are cut so that steps with streams stay within this
  PreemptionMode preemption = PreemptionMode::kRecompute;
};

}  // namespace lucid
