// The ledger: what every op of a plan costs in a step, what its weights weigh, and the sums. A pass
// over the plan and the op table; nothing here knows an architecture. docs/accounting.md explains
// the columns. Neighbours: hardware.h and predict.h (how long that takes), kv_facts.h (the cache).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/op_table.h"
#include "plan/plan.h"

namespace lucid {

// What a weight is for, or an op. Routers and shared experts are kExperts.
enum class Part : int8_t { kEmbedding, kAttention, kFfn, kExperts, kNorm, kHead };
inline constexpr size_t kParts = 6;
std::string_view Name(Part part);  // "embedding", "attention", "feed-forward", ...

struct LedgerWeight {
  std::string name;  // of the slot: "blk.3.attn_q"
  Part part = Part::kHead;
  DType dtype = DType::kF32;
  int64_t params = 0;
  int64_t bytes = 0;
  double used = 1;  // of its parameters, how many a token meets: below 1 for experts
};
// Every weight of the plan once, in order of first use. A matrix that is embedding and output both
// counts as embedding.
std::vector<LedgerWeight> ListWeights(const Plan& plan, std::span<const DType> dtypes);

struct LedgerRow {
  std::string name;  // of the op
  OpKind kind = OpKind::kEmbed;
  int layer = -1;  // -1: outside of the layers
  Part part = Part::kHead;
  Shape shape;               // of its first output
  std::string weights;       // types of its matrices, "Q4_K"; "" where it has none
  Cost cost;                 // with attention as the causal mask leaves it
  int64_t square_flops = 0;  // with every query of a prompt meeting every key
  // Weights and cache, each byte once: what must come from memory.
  int64_t memory_bytes() const {
    return cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes;
  }
};

struct Ledger {
  std::vector<LedgerRow> rows;  // one for each op
  Cost total;
  int64_t square_flops = 0;
  std::array<Cost, kParts> parts{};

  int64_t memory_bytes() const {
    return total.weight_bytes + total.kv_read_bytes + total.kv_write_bytes;
  }
  // FLOPs per byte that must come from memory.
  double intensity() const;
};
// The step that `work` describes (its weight_dtypes are those of the plan).
Ledger MakeLedger(const Plan& plan, const Workload& work);

// A step in which `batch` sequences bring their whole prompts of so many tokens.
Workload PromptWork(int64_t batch, int64_t tokens, const Workload& types);
// One in which each of them brings a token behind context - 1 others, so that it meets `context`
// keys.
Workload DecodeWork(int64_t batch, int64_t context, const Workload& types);

// Bytes of weights that a decode step of one sequence streams: of experts, those that it uses; the
// row of the embedding is looked up and does not count. Qwen2.5-7B in Q4_K_M: 4,370,558,976.
int64_t StreamedBytes(const Plan& plan, std::span<const DType> dtypes);

// A context (up to 2^31) from which on a decode step of one sequence reads at least as many bytes
// of keys and values as of weights; 0 where it never does.
int64_t KvPassesWeights(const Plan& plan, const Workload& types);

}  // namespace lucid
