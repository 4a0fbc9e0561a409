// MergeSymbols: the loop that all byte-pair encodings share, near linear in the number of symbols.
//
// Symbols stand in a doubly linked list of indices. The pair with the lowest rank, the leftmost of
// equals, is merged until no pair can be. Short lists are scanned, long ones use a heap. Used by
// bpe.h and spm.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lucid {

struct MergeSymbol {
  int32_t id = -1;      // token, or -1 where the text is no token by itself
  uint32_t begin = 0;   // first byte in the segment
  uint32_t length = 0;  // 0: merged into the symbol on its left
  int32_t prev = -1, next = -1;
};

inline constexpr uint32_t kNoMerge = UINT32_MAX;

// How far below this many symbols a scan of all pairs is cheaper than a heap.
inline constexpr size_t kScanSymbols = 24;

// The largest scratch list of symbols that a thread keeps between words.
inline constexpr size_t kKeptSymbols = 4096;

// Sets prev and next of symbols that stand in order.
inline void LinkSymbols(std::vector<MergeSymbol>& symbols) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].prev = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
}

// rank(left, right) -> {rank, id}: kNoMerge where the two cannot be merged. After a merge the
// survivors are the symbols with length > 0. `symbols` holds them in order with prev and next set.
template <typename Rank>
void MergeSymbols(std::vector<MergeSymbol>& symbols, const Rank& rank) {
  const auto merge = [&](size_t left, int32_t id) {
    MergeSymbol& a = symbols[left];
    MergeSymbol& b = symbols[static_cast<size_t>(a.next)];
    a.id = id;
    a.length += b.length;
    a.next = b.next;
    b.length = 0;
    if (a.next >= 0) symbols[static_cast<size_t>(a.next)].prev = static_cast<int32_t>(left);
  };
  struct Pair {
    uint32_t rank;
    int32_t id;
  };
  const auto pair_at = [&](size_t left) -> Pair {
    const MergeSymbol& a = symbols[left];
    if (a.length == 0 || a.next < 0) return {kNoMerge, -1};
    const auto [r, id] = rank(a, symbols[static_cast<size_t>(a.next)]);
    return {r, id};
  };

  const size_t n = symbols.size();
  if (n < 2) return;
  if (n <= kScanSymbols) {
    Pair pairs[kScanSymbols];
    for (size_t i = 0; i < n; ++i) pairs[i] = pair_at(i);
    while (true) {
      size_t best = 0;
      for (size_t i = 1; i < n; ++i) {
        if (pairs[i].rank < pairs[best].rank) best = i;
      }
      if (pairs[best].rank == kNoMerge) return;
      pairs[static_cast<size_t>(symbols[best].next)].rank = kNoMerge;
      merge(best, pairs[best].id);
      pairs[best] = pair_at(best);
      if (symbols[best].prev >= 0) {
        const auto before = static_cast<size_t>(symbols[best].prev);
        pairs[before] = pair_at(before);
      }
    }
  }

  // rank << 32 | position: the order of the queue is the order of the numbers. An entry is stale
  // when the pair at its position has another rank by now; what is merged there since is longer, so
  // never equal.
  const auto later = [](uint64_t a, uint64_t b) { return a > b; };
  std::vector<uint64_t> heap;
  heap.reserve(n);
  for (size_t i = 0; i + 1 < n; ++i) {
    const Pair pair = pair_at(i);
    if (pair.rank != kNoMerge) heap.push_back(static_cast<uint64_t>(pair.rank) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](size_t left) {
    const Pair pair = pair_at(left);
    if (pair.rank == kNoMerge) return;
    heap.push_back(static_cast<uint64_t>(pair.rank) << 32 | left);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto left = static_cast<size_t>(top & 0xFFFFFFFF);
    const Pair pair = pair_at(left);
    if (pair.rank != static_cast<uint32_t>(top >> 32)) continue;
    merge(left, pair.id);
    push(left);
    if (symbols[left].prev >= 0) push(static_cast<size_t>(symbols[left].prev));
  }
}

}  // namespace lucid
