#include "engine/footprint.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/pass.h"

namespace lucid {
namespace {

constexpr int64_t kLogitBytes = int64_t{512} << 20;  // see EngineConfig::logit_rows

Result<PoolCounts> ChooseBlocks(const KvLayout& layout, const EngineConfig& config, int64_t context,
                                int64_t available) {
  if (config.kv_memory > 0) {
    if (available > 0 && config.kv_memory > available) {
      return Err(ErrorCode::kCapacity,
                 "a cache of {} bytes (--kv-memory) does not fit the {} bytes of memory that are "
                 "available",
                 config.kv_memory, available);
    }
    return layout.Fit(config.kv_memory, config.n_parallel, config.batch);
  }
  const int64_t sequences = int64_t{config.n_parallel} + 1;
  const PoolCounts wanted = layout.BlocksForAll(sequences, context, config.batch);
  const int64_t most = available / 2;
  if (most == 0 || layout.Bytes(wanted) <= most) return wanted;
  return layout.Fit(most, config.n_parallel, config.batch);
}

// Bytes of matrices that have no packed form and lie in the mapped file, without those that are
// looked up only.
int64_t InPlaceBytes(const Model& model, const RunnerOptions& options) {
  PackedWeights packed;
  if (options.backend == BackendKind::kCpu) {
    packed = PackedWeights::Outline(options.fuse ? FusedPlan(model) : model.plan, model,
                                    options.numerics != Numerics::kFloat);
  }
  int64_t bytes = 0;
  std::set<int32_t> seen;
  for (const Op& op : model.plan.ops) {
    if (op.kind == OpKind::kEmbed) continue;
    for (const Value v : op.inputs) {
      if (!v.present() || model.plan.Info(v).kind != ValueKind::kWeight) continue;
      if (!model.weights.mapped(v) || packed[v] != nullptr || !seen.insert(v.id).second) continue;
      bytes += model.weights[v].bytes();
    }
  }
  return bytes;
}

// Of an arena for the largest step, the pages that steps of these sizes write.
int64_t TouchedArena(const Plan& plan, const Sizes& largest, const Sizes& sizes) {
  constexpr int64_t kPage = 4096;
  const MemoryPlan memory = PlanMemory(plan, largest);
  std::vector<std::pair<int64_t, int64_t>> ranges;  // pages [first, end)
  for (size_t i = 0; i < plan.values.size(); ++i) {
    if (memory.offsets[i] < 0) continue;
    const int64_t bytes = 4 * plan.values[i].shape.Elements(sizes);
    ranges.emplace_back(memory.offsets[i] / kPage, CeilDiv(memory.offsets[i] + bytes, kPage));
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t pages = 0, end = 0;
  for (const auto& [first, last] : ranges) {
    pages += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return pages * kPage;
}

}  // namespace

Result<int64_t> ContextOf(const ModelConfig& model, const EngineConfig& config) {
  const int64_t context = config.context > 0 ? config.context : model.context_length;
  if (config.context < 0 || context > kMostContext) {
    return Err(ErrorCode::kInvalidArgument, "a context of {} is out of range, which is 1 to {}",
               config.context < 0 ? config.context : context, kMostContext);
  }
  const int64_t learned = model.position_rows - model.position_offset;
  if (model.position_rows > 0 && context > learned) {
    return Err(ErrorCode::kInvalidArgument,
               "a context of {} is longer than the {} positions that the model has learned",
               context, learned);
  }
  return context;
}

int64_t LogitRows(const ModelConfig& model, const EngineConfig& config) {
  const int64_t row_bytes = model.vocab_size * int64_t{sizeof(float)};
  return std::min(config.logit_rows, std::max<int64_t>(32, kLogitBytes / row_bytes));
}

Result<RunnerOptions> RunnerOptionsOf(const Model& model, const EngineConfig& config,
                                      int64_t context, int64_t available) {
  RunnerOptions options;
  options.backend = config.backend;
  options.isa = config.isa;
  options.numerics = config.numerics;
  options.n_threads = config.n_threads;
  options.n_threads_batch = config.n_threads_batch;
  const int64_t logit_rows = LogitRows(model.config, config);
  options.max_tokens = std::max<int64_t>({config.batch, config.n_parallel, logit_rows});
  // Of every sequence one, of its shadow another.
  options.max_outputs = 2 * int64_t{config.n_parallel} + logit_rows;
  options.kv = {.k_type = config.cache_type_k,
                .v_type = config.cache_type_v,
                .block_size = config.kv_block_size};
  LUCID_ASSIGN_OR_RETURN(const KvLayout layout, KvLayout::Make(model.plan.kv_layers, options.kv));
  LUCID_ASSIGN_OR_RETURN(options.kv_blocks, ChooseBlocks(layout, config, context, available));
  return options;
}

Result<Footprint> ForeseeEngine(const Model& model, const EngineConfig& config, int64_t available) {
  Footprint footprint;
  LUCID_ASSIGN_OR_RETURN(footprint.context, ContextOf(model.config, config));
  LUCID_ASSIGN_OR_RETURN(const RunnerOptions options,
                         RunnerOptionsOf(model, config, footprint.context, available));
  LUCID_ASSIGN_OR_RETURN(footprint.runner, Runner::Foresee(model, options));
  footprint.weight_copies = model.weights.owned_bytes();
  footprint.in_place = InPlaceBytes(model, options);
  footprint.kv_blocks = options.kv_blocks;
  return footprint;
}

int64_t TouchedBytes(const Model& model, const EngineConfig& config, const Footprint& footprint,
                     int64_t prompt) {
  const KvOptions kv{.k_type = config.cache_type_k,
                     .v_type = config.cache_type_v,
                     .block_size = config.kv_block_size};
  const int64_t sequences = config.n_parallel;
  const Result<KvLayout> layout = KvLayout::Make(model.plan.kv_layers, kv);
  LUCID_CHECK(layout.has_value(), "a cache that was foreseen before");
  const bool fused = config.backend == BackendKind::kCpu;
  const int64_t rows = LogitRows(model.config, config);
  const Sizes largest{.tokens = std::max<int64_t>({config.batch, sequences, rows}),
                      .outputs = 2 * sequences + rows};
  const Sizes step{.tokens = std::min(config.batch, sequences * prompt), .outputs = sequences};
  return footprint.runner.packed + footprint.weight_copies + footprint.in_place +
         footprint.runner.scratch + sequences * layout->BytesFor(footprint.context) +
         TouchedArena(fused ? FusedPlan(model) : model.plan, largest, step);
}

}  // namespace lucid
