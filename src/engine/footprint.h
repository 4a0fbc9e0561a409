// Footprint: what an engine takes in memory, worked out from the headers of a model before any
// weight is read. Engine::Load uses the same functions for its sizes.
#pragma once

#include <cstdint>

#include "engine/config.h"
#include "exec/runner.h"
#include "models/load.h"

namespace lucid {

inline constexpr int64_t kMostContext = int64_t{1} << 30;

// Positions of a sequence under `config`. kInvalidArgument if that is out of range, or more than
// the model has learned positions.
Result<int64_t> ContextOf(const ModelConfig& model, const EngineConfig& config);

// EngineConfig::logit_rows, at most what a large vocabulary leaves.
int64_t LogitRows(const ModelConfig& model, const EngineConfig& config);

// The runner that `config` asks for, without files of packed weights. The cache has room for what
// was asked for, or for the parallel sequences and one more, so that prefixes stay, at most half of
// `available` bytes (0: any). kCapacity with both numbers if the cache does not fit.
Result<RunnerOptions> RunnerOptionsOf(const Model& model, const EngineConfig& config,
                                      int64_t context, int64_t available);

struct Footprint {
  int64_t weight_copies = 0;  // vectors, and matrices that the file has in another order
  RunnerBytes runner;
  int64_t in_place = 0;  // weights that products read where the file is mapped; not in total()
  int64_t context = 0;   // positions of a sequence
  PoolCounts kv_blocks{};

  int64_t total() const { return weight_copies + runner.total(); }
};
// What Engine::Load(config) allocates for this model (loaded without contents, or an outline).
Result<Footprint> ForeseeEngine(const Model& model, const EngineConfig& config, int64_t available);

// What of it has pages once n_parallel sequences have come to their whole context by prompts of
// `prompt` tokens: the parts of cache and arena that are written, everything else whole. Rows of
// embeddings that are looked up in the mapped file do not count, nor what the process has anyway.
int64_t TouchedBytes(const Model& model, const EngineConfig& config, const Footprint& footprint,
                     int64_t prompt);

}  // namespace lucid
