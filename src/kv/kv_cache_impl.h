// The state behind KvCache (kv_cache.h). Included by kv_cache*.cc only.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/kv_cache.h"
#include "kv/prefix_tree.h"
#include "kv/swap_space.h"

namespace lucid {

// One sequence. Block b of a table holds the tokens (places, for full groups) from b * block_size
// on. Entries before first[rule] are -1; all others are blocks that the sequence holds, or slots of
// the swap space while it is swapped out.
struct KvSequence {
  bool open = false;
  bool share = false;
  bool swapped = false;
  // The block that the next token goes to may be known to others. Set where sharing begins,
  // cleared by Reserve, so that most steps need not look.
  bool maybe_shared = false;
  int64_t length = 0;
  int64_t dropped = 0;
  int64_t prompt_length = 0;                 // see KvCache::prompt_length
  int64_t n_prompt = 0;                      // as told by Commit
  std::vector<std::vector<int32_t>> tables;  // by group
  std::array<int64_t, kMaxKvRules> first{};

  // Sharing sequences: their way through the tree. path[b] is the node of block b; the last node
  // (or the root) is locked. Shorter than the whole blocks only between SwapIn or ReserveRestored
  // and the next Commit.
  int32_t root = PrefixTree::kNone;
  uint64_t root_name = 0;
  std::vector<int32_t> path;
  int64_t packed_done = 0;         // packed blocks that path's nodes know
  std::vector<int32_t> n_prompts;  // by whole block: PrefixTree's n_prompt
  std::vector<int32_t> tail;       // the tokens behind the whole blocks
  // The tail's first tokens may be a copy of another's: how many, and how many of them are of the
  // prompt phase (PrefixTree's n_prompt).
  int32_t copied = 0;
  int32_t copied_prompt = 0;
};

struct KvCache::Impl {
  // What a prompt finds.
  struct Found {
    PrefixTree::Match match;
    PoolCounts idle{};
    PoolCounts copies{};
  };

  Impl(const KvLayout& layout_in, const KvCacheOptions& options_in, KvMemory& memory_in,
       SwapSpace swap_in);

  KvSequence& At(SequenceHandle sequence);
  const KvSequence& At(SequenceHandle sequence) const;
  SequenceHandle New();
  size_t PoolOf(size_t group) const { return static_cast<size_t>(layout.groups()[group].pool); }
  std::span<const int32_t> GroupsOf(size_t rule) const { return layout.rules()[rule].groups; }
  const KvRule& Rule(size_t rule) const { return layout.rules()[rule]; }
  size_t n_rules() const { return layout.rules().size(); }
  size_t n_groups() const { return layout.groups().size(); }
  // Entries of a rule's tables.
  int64_t Size(const KvSequence& s, size_t rule) const {
    return std::ssize(s.tables[static_cast<size_t>(GroupsOf(rule).front())]);
  }
  // Positions as a rule counts them.
  int64_t Places(const KvSequence& s, size_t rule, int64_t position) const {
    return Rule(rule).kind == KvGroupKind::kFull ? position - s.dropped : position;
  }
  // What the sequence must keep of a rule while its length is n_tokens.
  BlockRange Kept(const KvSequence& s, size_t rule, int64_t n_tokens) const {
    const int64_t places = Places(s, rule, n_tokens);
    return layout.Needed(Rule(rule), places, places);
  }
  PoolCounts Available() const {
    PoolCounts blocks{};
    for (size_t p = 0; p < pools.size(); ++p) blocks[p] = pools[p].available();
    return blocks;
  }

  // Whether a block of the sequence must be copied before it is written.
  bool Known(size_t group, int32_t block) const {
    const BlockPool& pool = pools[PoolOf(group)];
    return pool.holders(block) > 1 || pool.remembered(block);
  }
  int32_t TakeBlock(size_t group);
  void ReplaceByCopy(KvSequence& s, size_t group, int64_t block);
  // The block that holds place `length` and has tokens already, or -1.
  int64_t WriteBlock(const KvSequence& s, size_t rule) const;
  PoolCounts Need(const KvSequence& s, int64_t n_tokens) const;
  bool Reserve(KvSequence& s, int64_t n_tokens);

  // Gives back entries from `size` on of all tables of a rule.
  void Shrink(KvSequence& s, size_t rule, int64_t size);
  // Gives back entries before `first` of a rule.
  void LeaveWindow(KvSequence& s, size_t rule, int64_t first);
  // Gives everything back, tails first.
  void ReleaseAll(KvSequence& s);

  Found Find(std::span<const int32_t> tokens, int64_t most, uint64_t root, int64_t n_prompt) const;
  void CountIdle(Found& found) const;
  void HoldPath(KvSequence& s, const PrefixTree::Match& match);
  void CopyPartial(KvSequence& s, const PrefixTree::Match& match);

  int32_t LastNode(const KvSequence& s) const { return s.path.empty() ? s.root : s.path.back(); }
  // Ends the sequence's way through the tree after n_blocks blocks.
  void CutPath(KvSequence& s, int64_t n_blocks);
  void LeaveTree(KvSequence& s);
  // n_prompt of block b: `n` tokens of it.
  int32_t PromptTokens(const KvSequence& s, int64_t block, int64_t n) const;
  void Publish(KvSequence& s, std::span<const int32_t> tokens);
  void PublishPacked(KvSequence& s);
  void Offer(KvSequence& s, size_t rule, int64_t block, int32_t node);
  void PublishLeaf(KvSequence& s);

  Status CheckSequence(size_t index) const;
  Status CheckPath(size_t index) const;
  Status CheckHolders() const;
  Status CheckSwap() const;

  KvLayout layout;
  KvCacheOptions options;
  KvMemory& memory;
  std::vector<BlockPool> pools;
  PrefixTree tree;
  SwapSpace swap;
  std::vector<KvSequence> sequences;
  std::vector<SequenceHandle> unused;
  int64_t n_open = 0;
  int64_t prefix_lookups = 0;
  int64_t prefix_hits = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t copies = 0;
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
};

}  // namespace lucid
