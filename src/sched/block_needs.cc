#include "sched/block_needs.h"

#include <algorithm>

namespace lucid {
namespace {

// The blocks of a group at the end of the way to n_tokens, when the last step has `chunk` tokens.
BlockRange LastBlocks(const KvLayout& layout, size_t group, const Sequence& sequence,
                      int64_t n_computed, int64_t chunk) {
  const int64_t n_tokens = sequence.length();
  if (layout.groups()[group].kind == KvGroupKind::kFull) {
    const int64_t places = std::min(n_tokens, sequence.most_places());
    return layout.Needed(group, std::min(n_computed, places), places);
  }
  BlockRange range = layout.Needed(group, std::max(n_computed, n_tokens - chunk), n_tokens);
  // An earlier step of a window may begin closer to a block's end and touch one block more.
  if (layout.groups()[group].kind == KvGroupKind::kWindow && n_tokens - chunk > n_computed) {
    range.first = std::max<int64_t>(0, range.first - 1);
  }
  return range;
}

}  // namespace

PoolCounts& operator+=(PoolCounts& a, const PoolCounts& b) {
  for (size_t pool = 0; pool < a.size(); ++pool) a[pool] += b[pool];
  return a;
}

PoolCounts& operator-=(PoolCounts& a, const PoolCounts& b) {
  for (size_t pool = 0; pool < a.size(); ++pool) a[pool] = std::max<int64_t>(0, a[pool] - b[pool]);
  return a;
}

PoolCounts LeastBlocks(const KvLayout& layout, int64_t max_length, int64_t max_places) {
  // Windows touch one block more or less as they move on; after block_size steps that repeats.
  PoolCounts most{};
  for (int64_t n = std::max<int64_t>(1, max_length - layout.block_size() + 1); n <= max_length;
       ++n) {
    PoolCounts blocks{};
    for (size_t group = 0; group < layout.groups().size(); ++group) {
      const bool full = layout.groups()[group].kind == KvGroupKind::kFull;
      const int64_t places = full ? std::min(n, max_places) : n;
      blocks[static_cast<size_t>(layout.groups()[group].pool)] +=
          layout.Needed(group, places - 1, places).size();
    }
    for (size_t pool = 0; pool < most.size(); ++pool)
      most[pool] = std::max(most[pool], blocks[pool]);
  }
  return most;
}

PoolCounts RemainingBlocks(const KvLayout& layout, const Sequence& sequence, int64_t n_computed,
                           int64_t chunk) {
  PoolCounts blocks{};
  if (n_computed >= sequence.length()) return blocks;
  for (size_t group = 0; group < layout.groups().size(); ++group) {
    const bool full = layout.groups()[group].kind == KvGroupKind::kFull;
    const int64_t places = full ? std::min(n_computed, sequence.most_places()) : n_computed;
    const int64_t held =
        std::min(layout.Needed(group, places, places).size(), CeilDiv(places, layout.block_size()));
    const int64_t most = LastBlocks(layout, group, sequence, n_computed, chunk).size();
    blocks[static_cast<size_t>(layout.groups()[group].pool)] += std::max<int64_t>(0, most - held);
  }
  return blocks;
}

PoolCounts AdmissionBlocks(const KvLayout& layout, const Sequence& sequence, const PrefixPeek& peek,
                           int64_t chunk) {
  PoolCounts blocks = peek.idle;
  const int64_t whole = peek.n_tokens / layout.block_size();  // a partial block is copied
  for (size_t group = 0; group < layout.groups().size(); ++group) {
    const BlockRange range = LastBlocks(layout, group, sequence, peek.n_tokens, chunk);
    blocks[static_cast<size_t>(layout.groups()[group].pool)] +=
        BlockRange{std::max(range.first, whole), range.last}.size();
  }
  return blocks;
}

}  // namespace lucid
