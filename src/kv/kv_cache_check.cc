// KvCache::CheckInvariants: what must hold between two steps.
#include <map>
#include <utility>

#include "kv/kv_cache_impl.h"

namespace lucid {

Status KvCache::Impl::CheckSequence(size_t index) const {
  const KvSequence& s = sequences[index];
  for (size_t g = 0; g < n_groups(); ++g) {
    const size_t r = static_cast<size_t>(layout.groups()[g].rule);
    const KvGroupKind kind = Rule(r).kind;
    const std::vector<int32_t>& table = s.tables[g];
    if (!s.open && !table.empty()) {
      return Err(ErrorCode::kInvalidArgument, "closed sequence {} has blocks", index);
    }
    if (std::ssize(table) != Size(s, r) || s.first[r] > Size(s, r)) {
      return Err(ErrorCode::kInvalidArgument, "sequence {} has a table of {} blocks in group {}",
                 index, table.size(), g);
    }
    const BlockRange kept = Kept(s, r, s.length);
    if (s.length > 0 && (kept.first < s.first[r] || kept.last > Size(s, r))) {
      return Err(ErrorCode::kInvalidArgument,
                 "sequence {} of {} tokens has blocks {} to {} of group {}, not {} to {}", index,
                 s.length, s.first[r], Size(s, r), g, kept.first, kept.last);
    }
    for (int64_t b = 0; b < Size(s, r); ++b) {
      const int32_t block = table[static_cast<size_t>(b)];
      if ((block >= 0) != (b >= s.first[r])) {
        return Err(ErrorCode::kInvalidArgument, "sequence {} has block {} at {} of group {}", index,
                   block, b, g);
      }
      const bool unwritten = b >= kept.last;
      if (block >= 0 && unwritten && !s.swapped && kind != KvGroupKind::kPacked &&
          Known(g, block)) {
        return Err(ErrorCode::kInvalidArgument,
                   "sequence {} will write block {} of group {}, which others know", index, block,
                   g);
      }
      const bool next_write = unwritten || b == WriteBlock(s, r);
      if (block >= 0 && next_write && !s.swapped && !s.maybe_shared && Known(g, block)) {
        return Err(ErrorCode::kInvalidArgument,
                   "sequence {} takes block {} of group {} for its own, but others know it", index,
                   block, g);
      }
    }
  }
  return {};
}

Status KvCache::Impl::CheckPath(size_t index) const {
  const KvSequence& s = sequences[index];
  const int64_t size = layout.block_size();
  if (!s.open) return {};
  if (s.root == PrefixTree::kNone) {
    if (!s.path.empty() || (s.share && !s.swapped)) {
      return Err(ErrorCode::kInvalidArgument, "sequence {} has lost its way in the tree", index);
    }
    return {};
  }
  if (!s.share || s.swapped || std::ssize(s.path) > s.length / size ||
      s.path.size() > s.n_prompts.size() || std::ssize(s.tail) != s.length % size) {
    return Err(ErrorCode::kInvalidArgument, "sequence {} of {} tokens has a path of {} blocks",
               index, s.length, s.path.size());
  }
  for (size_t b = 0; b < s.path.size(); ++b) {
    const int32_t node = s.path[b];
    if (tree.parent(node) != (b == 0 ? s.root : s.path[b - 1]) ||
        tree.n_prompt(node) != s.n_prompts[b]) {
      return Err(ErrorCode::kInvalidArgument, "block {} of sequence {} is on another path", b,
                 index);
    }
    for (size_t g = 0; g < n_groups(); ++g) {
      const size_t r = static_cast<size_t>(layout.groups()[g].rule);
      const bool packed = Rule(r).kind == KvGroupKind::kPacked;
      const int64_t last = packed ? s.packed_done : Size(s, r);
      const int64_t block = static_cast<int64_t>(b);
      if (block < s.first[r] || block >= last) continue;
      if (s.tables[g][b] != tree.block(node, g)) {
        return Err(ErrorCode::kInvalidArgument,
                   "block {} of sequence {}, group {}, is {}, in the tree {}", b, index, g,
                   s.tables[g][b], tree.block(node, g));
      }
    }
  }
  return {};
}

// Holders and locks are what the tables and paths say; a block has one place only.
Status KvCache::Impl::CheckHolders() const {
  std::vector<std::vector<int32_t>> holders;
  std::vector<std::vector<std::pair<size_t, size_t>>> places;
  for (const BlockPool& pool : pools) {
    holders.emplace_back(static_cast<size_t>(pool.total()), 0);
    places.emplace_back(static_cast<size_t>(pool.total()));
  }
  std::map<int32_t, int32_t> locks;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const KvSequence& s = sequences[i];
    if (!s.open || s.swapped) continue;
    if (s.root != PrefixTree::kNone) ++locks[LastNode(s)];
    for (size_t g = 0; g < n_groups(); ++g) {
      for (size_t b = 0; b < s.tables[g].size(); ++b) {
        if (s.tables[g][b] < 0) continue;
        const size_t block = static_cast<size_t>(s.tables[g][b]);
        std::pair<size_t, size_t>& place = places[PoolOf(g)][block];
        if (holders[PoolOf(g)][block]++ == 0) {
          place = {g, b};
        } else if (place != std::pair(g, b)) {
          return Err(ErrorCode::kInvalidArgument,
                     "block {} of pool {} is held for two different places", block, PoolOf(g));
        }
      }
    }
  }
  for (size_t p = 0; p < pools.size(); ++p) {
    for (int32_t b = 0; b < pools[p].total(); ++b) {
      if (pools[p].holders(b) != holders[p][static_cast<size_t>(b)]) {
        return Err(ErrorCode::kInvalidArgument, "block {} of pool {} has {} holders, not {}", b, p,
                   holders[p][static_cast<size_t>(b)], pools[p].holders(b));
      }
    }
  }
  int64_t locked = 0;
  for (const auto& [node, count] : locks) {
    locked += count;
    if (tree.locks(node) != count) {
      return Err(ErrorCode::kInvalidArgument, "node {} has {} locks, not {}", node, count,
                 tree.locks(node));
    }
  }
  if (locked != tree.all_locks()) {
    return Err(ErrorCode::kInvalidArgument, "sequences hold {} locks, the tree counts {}", locked,
               tree.all_locks());
  }
  return {};
}

Status KvCache::Impl::CheckSwap() const {
  for (size_t p = 0; p < pools.size(); ++p) {
    std::vector<bool> seen(static_cast<size_t>(swap.total(p)), false);
    int64_t used = 0;
    for (const KvSequence& s : sequences) {
      if (!s.open || !s.swapped) continue;
      for (size_t g = 0; g < n_groups(); ++g) {
        if (PoolOf(g) != p) continue;
        for (const int32_t slot : s.tables[g]) {
          if (slot < 0) continue;
          if (seen[static_cast<size_t>(slot)]) {
            return Err(ErrorCode::kInvalidArgument, "swap slot {} of pool {} is used twice", slot,
                       p);
          }
          seen[static_cast<size_t>(slot)] = true;
          ++used;
        }
      }
    }
    if (used != swap.used(p)) {
      return Err(ErrorCode::kInvalidArgument, "{} swap slots of pool {} are in use, not {}", used,
                 p, swap.used(p));
    }
  }
  return {};
}

Status KvCache::CheckInvariants() const {
  const Impl& c = *impl_;
  for (const BlockPool& pool : c.pools) LUCID_RETURN_IF_ERROR(pool.CheckInvariants());
  LUCID_RETURN_IF_ERROR(c.tree.CheckInvariants());
  for (size_t i = 0; i < c.sequences.size(); ++i) {
    LUCID_RETURN_IF_ERROR(c.CheckSequence(i));
    LUCID_RETURN_IF_ERROR(c.CheckPath(i));
  }
  LUCID_RETURN_IF_ERROR(c.CheckHolders());
  return c.CheckSwap();
}

}  // namespace lucid
