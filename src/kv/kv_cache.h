// KvCache: the cache of all sequences: block tables, shared prefixes, copy-on-write, swapping.
// Bookkeeping only: the bytes lie behind KvMemory, so all of this is testable without a model.
//
// Life of a sequence: Open -> Attach (what is cached of its tokens) -> for each step Reserve, the
// kernels write, Commit -> Close. Full blocks go to the prefix tree as they are committed, the last
// partial one at Close; a later sequence with the same tokens finds them. A block that the tree or
// another sequence knows is never written: the writer gets a copy first.
//
// Not thread-safe: the engine's loop owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/kv_layout.h"
#include "kv/kv_storage.h"

namespace lucid {

using SequenceHandle = int32_t;
// As a number of prompt tokens: all of them, whatever their number.
constexpr int64_t kAllTokens = int64_t{1} << 60;

struct KvCacheOptions {
  PoolCounts n_blocks{};
  PoolCounts swap_blocks{};    // room for blocks of swapped-out sequences, in host memory
  bool prefix_sharing = true;  // false: nothing is kept for others
  // Tokens of a prompt never reuse what was computed for generated ones, nor the other way round
  // (the numerics of a token depend on its phase).
  bool strict = false;
};

// What a prompt would find, without taking it.
struct PrefixPeek {
  int64_t n_tokens = 0;
  // Blocks of it that nobody holds: attaching makes them unavailable. The copy of a partial block
  // (one block of each group that is not packed) is not among them.
  PoolCounts idle{};
};

struct KvCacheStats {
  PoolCounts total{}, free{}, cached{}, held{}, swapped{};
  int64_t sequences = 0;
  int64_t held_bytes = 0;          // by all sequences together, shared blocks once
  int64_t used_positions = 0;      // over sequences and groups: places that hold a token
  int64_t reserved_positions = 0;  // over sequences and groups: places of their blocks
  int64_t worst_waste = 0;         // the most unused places that one sequence has in one group
  int64_t prefix_lookups = 0, prefix_hits = 0, prefix_hit_tokens = 0;  // by Attach
  int64_t copies = 0;          // blocks copied on write, forks and partial hits
  int64_t evicted_blocks = 0;  // cached blocks whose memory was needed
  int64_t swapped_out_blocks = 0, swapped_in_blocks = 0;
};

class KvCache {
 public:
  // `memory` must outlive the cache; `layout` is copied. kCapacity if swap space is refused.
  static Result<std::unique_ptr<KvCache>> Create(const KvLayout& layout,
                                                 const KvCacheOptions& options, KvMemory& memory);
  ~KvCache();

  const KvLayout& layout() const;
  const KvCacheOptions& options() const;

  // A new, empty sequence. `root` separates what must not be shared (another adapter). A sequence
  // that does not `share` neither finds nor leaves anything in the tree.
  SequenceHandle Open(bool share = true, uint64_t root = 0);
  // A second sequence with the same content; blocks are shared until one of them writes.
  SequenceHandle Fork(SequenceHandle sequence);
  // Gives everything back; what was committed stays cached for others.
  void Close(SequenceHandle sequence);

  // The longest cached prefix of `tokens`, at most `most` tokens, that a sharing sequence could
  // take. n_prompt: how many of the tokens are of the prompt phase, for a sequence that is to be
  // computed again with its reply so far. A strict cache gives only what was computed in just these
  // phases; others prefer it.
  PrefixPeek Peek(std::span<const int32_t> tokens, int64_t most, uint64_t root = 0,
                  int64_t n_prompt = kAllTokens) const;
  // Takes it for an empty sequence and returns its length. May copy one partial block; where no
  // block is available for the copy, the prefix ends at the block before. `counts`: among the
  // lookups and hits of the stats.
  int64_t Attach(SequenceHandle sequence, std::span<const int32_t> tokens, int64_t most,
                 int64_t n_prompt = kAllTokens, bool counts = true);

  // Blocks that Reserve(sequence, n_tokens) would take, copies included.
  PoolCounts Need(SequenceHandle sequence, int64_t n_tokens) const;
  // Room to compute tokens up to n_tokens (exclusive), every block of it owned by this sequence
  // alone where it will be written. False, with nothing changed, if the pools cannot give it.
  [[nodiscard]] bool Reserve(SequenceHandle sequence, int64_t n_tokens);
  // The same for a sequence whose first n_tokens were computed elsewhere and are about to be
  // written through KvMemory: of an empty sequence only the blocks that Table must lead to
  // afterwards, KvLayout::Needed(g, n_tokens, n_tokens). Commit(.., n_tokens, ..) must follow.
  [[nodiscard]] bool ReserveRestored(SequenceHandle sequence, int64_t n_tokens);
  // tokens[0 .. n_computed) are in the cache now. The first n_prompt of all tokens are computed in
  // the prompt phase. Offers full blocks to the tree (a block that is already there replaces ours)
  // and gives back blocks that windows have left.
  void Commit(SequenceHandle sequence, std::span<const int32_t> tokens, int64_t n_computed,
              int64_t n_prompt);
  // Forgets the tokens from n_tokens on, and gives back the blocks behind them, reserved ones too
  // (rejected drafts). n_tokens <= committed length; windows must still have what the next query at
  // n_tokens reads, which is so for tokens that were reserved and never committed.
  void Truncate(SequenceHandle sequence, int64_t n_tokens);
  // After eviction: the places of full groups are now 0 .. n_places - 1; later blocks go back. Only
  // for sequences that do not share and have no twin: their rows have been moved.
  void DropPlaces(SequenceHandle sequence, int64_t n_places);

  int64_t length(SequenceHandle sequence) const;   // tokens committed or attached
  int64_t dropped(SequenceHandle sequence) const;  // positions - places of full groups
  // Of the attached and committed tokens, how many were computed in the prompt phase all the way.
  int64_t prompt_length(SequenceHandle sequence) const;
  // Physical block by logical block of a group; -1 where a window has left.
  std::span<const int32_t> Table(SequenceHandle sequence, size_t group) const;
  // Blocks that become available if the sequence closes (those nobody else holds).
  PoolCounts Releases(SequenceHandle sequence) const;
  // Blocks that the sequence needs to come back from the swap space.
  PoolCounts SwapNeed(SequenceHandle sequence) const;
  // Bytes of the sequence's blocks, shared ones included; while it is swapped out, in the swap
  // space.
  int64_t bytes(SequenceHandle sequence) const;

  // Moves a sequence's blocks to the swap space. False, with nothing changed, if it is full.
  [[nodiscard]] bool SwapOut(SequenceHandle sequence);
  [[nodiscard]] bool SwapIn(SequenceHandle sequence);
  bool swapped(SequenceHandle sequence) const;

  PoolCounts available() const;  // free and cached blocks
  const KvMemory& memory() const;
  KvMemory& memory();
  KvCacheStats stats() const;
  // Everything that must hold between two steps: counts of every pool, holders against tables, the
  // tree against the pools, no block in the write set of two owners. The error names the block.
  Status CheckInvariants() const;

 private:
  struct Impl;  // kv_cache_impl.h
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid
