// How many blocks sequences take, worked out from the layout alone. The exact figure of a running
// sequence's next tokens is KvCache::Need; these look further ahead.
#pragma once

#include <cstdint>

#include "kv/kv_cache.h"
#include "kv/kv_layout.h"
#include "sched/sequence.h"

namespace lucid {

PoolCounts& operator+=(PoolCounts& a, const PoolCounts& b);
// Not below zero.
PoolCounts& operator-=(PoolCounts& a, const PoolCounts& b);

// Without these no step can compute the sequence's last tokens, one by one and alone.
PoolCounts LeastBlocks(const KvLayout& layout, int64_t max_length, int64_t max_places);
// What a sequence that holds n_computed tokens still takes until its known tokens are computed, in
// steps of at most `chunk`.
PoolCounts RemainingBlocks(const KvLayout& layout, const Sequence& sequence, int64_t n_computed,
                           int64_t chunk);
// The same for one that is about to attach what `peek` found; with the idle blocks among them.
PoolCounts AdmissionBlocks(const KvLayout& layout, const Sequence& sequence, const PrefixPeek& peek,
                           int64_t chunk);

// The largest count in 0 .. most for which fits(count) holds; fits must be monotone.
template <typename Predicate>
int64_t LargestCount(int64_t most, Predicate fits) {
  if (most <= 0) return 0;
  if (fits(most)) return most;
  int64_t low = 0;
  int64_t high = most;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace lucid
