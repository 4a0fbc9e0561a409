// KvLayout: which block tables a sequence has and what a block holds, worked out once from what the
// plan's layers need.
//
// Layers with one window and one page size form a group; all layers of a group share a sequence's
// block table. Groups that share a pool must fill a block in the same way, so a kind of layers is
// cut into groups of equal size: the greatest common divisor of the layer counts of all kinds whose
// pages are equally large (Gemma 3 270M: 3 full and 15 window layers give one full group and five
// window groups of 3 layers each, out of one pool). So no memory is set aside for one kind.
// Kivi2 needs two groups per kind: quantised pages and float16 pages of the newest positions, out
// of two pools.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/op.h"
#include "tensor/kv_type.h"
#include "tensor/paged_view.h"

namespace lucid {

struct KvOptions {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  int64_t block_size = 32;  // positions in a block
};

constexpr int kMaxKvPools = 4;
constexpr int kMaxKvRules = 8;
// Blocks by pool.
using PoolCounts = std::array<int64_t, kMaxKvPools>;

// Whether every pool has room. What is not needed fits even where less than nothing is left.
constexpr bool Fits(const PoolCounts& need, const PoolCounts& room) {
  for (size_t pool = 0; pool < need.size(); ++pool) {
    if (need[pool] > 0 && need[pool] > room[pool]) return false;
  }
  return true;
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

enum class KvGroupKind : int8_t {
  kFull,    // every place is kept
  kWindow,  // only blocks that the window of the next query reaches
  kPacked,  // kivi2's quantised blocks: those that kKiviResidual has left
};

struct KvGroup {
  KvGroupKind kind = KvGroupKind::kFull;
  int64_t window = 0;  // kWindow: keys a query sees, itself included
  int32_t pool = 0;
  int32_t rule = 0;
  std::vector<int32_t> layers;  // slot i of a block is the page of layer layers[i]
};

// Groups of one kind and window: a sequence always holds the same logical blocks of each of them.
struct KvRule {
  KvGroupKind kind = KvGroupKind::kFull;
  int64_t window = 0;
  std::vector<int32_t> groups;
};

struct KvPool {
  std::vector<int64_t> page_bytes;  // by slot
  int64_t block_bytes = 0;          // their sum
};

// Where a layer's pages are: slot `slot` of the blocks of group `group`.
struct KvPlace {
  int32_t group = 0;
  int32_t slot = 0;
  int32_t recent_group = -1;  // kivi2: the float16 pages
  int32_t recent_slot = 0;
};

// Logical blocks [first, last).
struct BlockRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last > first ? last - first : 0; }
};

class KvLayout {
 public:
  // kInvalidArgument for a block size outside 1 .. 1024, a type that a layer cannot have (kivi2 for
  // one of K and V only, or for latent caches, whose v_dim is 0; kivi2 with a block size that is no
  // multiple of 4, or where every layer has a window), kUnsupported for more than kMaxKvPools page
  // sizes or kMaxKvRules rules. Layers with a window keep float16 pages in a kivi2 cache: what
  // their window reaches is hardly more than the positions that kivi2 leaves alone.
  static Result<KvLayout> Make(std::span<const KvSpec> layers, const KvOptions& options);

  const KvOptions& options() const { return options_; }
  int64_t block_size() const { return options_.block_size; }
  std::span<const KvSpec> layers() const { return layers_; }
  std::span<const KvGroup> groups() const { return groups_; }
  std::span<const KvPool> pools() const { return pools_; }
  std::span<const KvRule> rules() const { return rules_; }
  const KvPlace& place(size_t layer) const { return places_[layer]; }

  // The blocks of a group that a sequence must hold to compute positions [n_computed, n_tokens):
  // those that any of these queries reads or writes. n_computed == n_tokens: what the next query
  // would read. For kFull groups positions are cache places.
  BlockRange Needed(size_t group, int64_t n_computed, int64_t n_tokens) const {
    return Needed(rules_[static_cast<size_t>(groups_[group].rule)], n_computed, n_tokens);
  }
  BlockRange Needed(const KvRule& rule, int64_t n_computed, int64_t n_tokens) const;
  // Sum over groups of Needed(g, n_computed, n_tokens), by pool.
  PoolCounts BlocksFor(int64_t n_computed, int64_t n_tokens) const;
  // Bytes of the blocks that a sequence of n_tokens holds once all are computed.
  int64_t BytesFor(int64_t n_tokens) const;
  // The pages that `recent` says: a layer's float16 pages of a kivi2 cache, else its main ones.
  // `table` is set, `data` is not.
  KvPages Pages(size_t layer, bool recent) const;
  // Bytes of `blocks` blocks of each pool.
  int64_t Bytes(const PoolCounts& blocks) const;
  // Bytes that one position of every layer takes, windows and block borders left aside.
  // Qwen2.5-7B in f16: 57,344.
  int64_t BytesPerToken() const;

  // Blocks of each pool that fit `bytes`: pools with windows or kivi2's float16 pages get what
  // `max_sequences` sequences and one step of `max_step_tokens` can use, at most half; the rest
  // goes to the others. kCapacity with both numbers if not one sequence of one block fits.
  Result<PoolCounts> Fit(int64_t bytes, int64_t max_sequences, int64_t max_step_tokens) const;
  // Blocks with which `n_sequences` sequences of `context` tokens fit at once, steps included.
  PoolCounts BlocksForAll(int64_t n_sequences, int64_t context, int64_t max_step_tokens) const;

 private:
  void AddPart(KvGroupKind kind, int64_t window, std::span<const int32_t> layers,
               int64_t page_bytes, int64_t group_size, int32_t pool);
  int64_t MostBlocks(const KvGroup& group, int64_t n_sequences, int64_t context,
                     int64_t max_step_tokens) const;

  KvOptions options_;
  std::vector<KvSpec> layers_;
  std::vector<KvGroup> groups_;
  std::vector<KvPool> pools_;
  std::vector<KvRule> rules_;
  std::vector<KvPlace> places_;  // by layer
};

}  // namespace lucid
