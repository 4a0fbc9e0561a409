// Eviction: bounded caches. A policy decides which cache places a sequence keeps; an Evictor
// carries one sequence's policy through its life, moves the rows and keeps the quality bill.
//
// Positions: keys keep the position they were rotated for (H2O, SnapKV). StreamingLLM counts
// positions inside the cache; of the distances to a query only those of the sinks differ from the
// original ones, so the sinks' keys are rotated anew, from a saved copy, whenever tokens between
// them and the window are dropped.
//
// Evictions happen at places that depend on the sequence alone (never on chunking): with a budget
// of N, window_sink and h2o drop one block_size of tokens each time N places are full, in the
// prompt too; snapkv drops once, at the end of the prompt. Layers with a sliding window are left
// alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/kv_cache.h"
#include "kv/kv_storage.h"
#include "tensor/op_enums.h"
#include "tensor/paged_view.h"

namespace lucid {

enum class KvPolicy : int8_t {
  kFull,
  kWindowSink,  // StreamingLLM (Xiao et al. 2023, arXiv 2309.17453): the first 4 and the newest
  kH2o,         // heavy hitters (Zhang et al. 2023, arXiv 2306.14048): half of the budget for the
                // largest sums of attention, half for the newest; per layer and KV head
  kSnapKv,      // SnapKV (Li et al. 2024, arXiv 2404.14469): the last 32 prompt tokens vote
                // (max-pooled over 7 places), per layer and KV head
};
std::string_view Name(KvPolicy policy);  // "full", "window_sink", "h2o", "snapkv"
std::optional<KvPolicy> KvPolicyFromName(std::string_view name);
std::span<const KvPolicy> AllKvPolicies();

constexpr int64_t kAttentionSinks = 4;
constexpr int64_t kSnapKvWindow = 32;
constexpr int64_t kSnapKvPool = 7;

struct EvictionOptions {
  KvPolicy policy = KvPolicy::kFull;
  int64_t budget = 0;  // places per sequence; for snapkv of the prompt
};

// The smallest budget that makes sense: four blocks (what is dropped at once is a quarter then),
// at least 16 places (the sinks are a quarter then), for snapkv at least twice its window.
int64_t LeastBudget(KvPolicy policy, int64_t block_size);
// kInvalidArgument where the options make no sense for this cache: a budget under LeastBudget, a
// policy on a kivi2 cache, every layer windowed. kFull always does.
Status CheckEviction(const EvictionOptions& options, const KvLayout& layout);

// How keys of one KV layer were rotated, to rotate them further. n_pairs == 0: not at all.
struct KeyRotation {
  std::vector<float> inv_freq;  // [n_pairs], by position
  RopeStyle style = RopeStyle::kHalfSplit;
};

// The quality bill of one sequence.
struct EvictionBill {
  int64_t evicted_tokens = 0;  // places dropped, per layer and head
  int64_t evictions = 0;       // times that places were dropped
  double attention_seen = 0;  // softmax mass that the policy's queries gave out, over layers, heads
  double attention_dropped = 0;  // of it, what dropped keys had received
  double dropped_share() const {
    return attention_seen > 0 ? attention_dropped / attention_seen : 0;
  }
};

// Places to keep, ascending: n_keep out of n_places, or all where there are no more. Pure.
// `scores`, `n_places` floats, are the sums of attention of one KV head (unused by window_sink); of
// equal ones the lower place is kept, one that is no number counts as the smallest. For kSnapKv the
// votes are of the last kSnapKvWindow places, which are always kept.
std::vector<int32_t> PlacesToKeep(KvPolicy policy, std::span<const float> scores, int64_t n_places,
                                  int64_t n_keep);

class Evictor {
 public:
  // For a policy other than kFull. `rotations` by KV layer (needed by kWindowSink only, else may be
  // empty); must outlive the evictor, like the storage. What CheckEviction says, or kCapacity where
  // scores find no memory.
  static Result<std::unique_ptr<Evictor>> Create(const EvictionOptions& options,
                                                 const KvStorage& storage,
                                                 std::span<const KeyRotation> rotations,
                                                 int64_t n_prompt);
  ~Evictor();

  // How many tokens the next step may compute, so that an eviction that is due after them is not
  // missed; >= 1. A very large number where none will be due.
  int64_t Room(int64_t n_computed) const;
  // Called after every Commit with the committed length: evicts if it is time. The cache then has
  // fewer places (KvCache::DropPlaces is called); storage rows and scores are moved. The sequence
  // must not share blocks.
  void AfterStep(KvCache& cache, SequenceHandle sequence, int64_t n_computed);
  // For the step's StepView. Layers with a sliding window have no sums: their rows stay zero.
  KeyScores scores() const;
  // Up to the last AfterStep.
  EvictionBill bill() const;
  // The sequence starts over (recomputation after preemption).
  void Reset();
  // Places that the sequence can come to hold at most, for a final length of n_tokens.
  int64_t MostPlaces(int64_t n_tokens) const;

 private:
  struct Impl;
  explicit Evictor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid
