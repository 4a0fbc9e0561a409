// KvCache: what sequences find in the prefix tree and leave there, and their way to the swap space
// and back.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace lucid {

// Whether the match can be taken, and what that costs.
void KvCache::Impl::CountIdle(Found& found) const {
  found.idle = found.copies = {};
  const int64_t n_tokens = found.match.n_tokens;
  int32_t node = found.match.node;
  for (int64_t b = n_tokens / layout.block_size() - 1; b >= 0; --b, node = tree.parent(node)) {
    for (const KvRule& rule : layout.rules()) {
      const BlockRange needed = layout.Needed(rule, n_tokens, n_tokens);
      if (b < needed.first || b >= needed.last) continue;
      for (const int32_t group : rule.groups) {
        const size_t g = static_cast<size_t>(group);
        if (pools[PoolOf(g)].holders(tree.block(node, g)) == 0) ++found.idle[PoolOf(g)];
      }
    }
  }
}

KvCache::Impl::Found KvCache::Impl::Find(std::span<const int32_t> tokens, int64_t most,
                                         uint64_t root, int64_t n_prompt) const {
  Found found;
  if (!options.prefix_sharing) return found;
  const PrefixTree::Matches matches = tree.Longest(root, tokens, most, n_prompt, options.strict);
  found.match = matches.best;
  CountIdle(found);
  if (found.match.partial == PrefixTree::kNone) return found;

  // While a partial block is copied, its source cannot be evicted to make room for the copy.
  PoolCounts room{};
  for (size_t p = 0; p < pools.size(); ++p) room[p] = pools[p].available() - found.idle[p];
  for (size_t g = 0; g < n_groups(); ++g) {
    if (layout.groups()[g].kind == KvGroupKind::kPacked) continue;
    const size_t p = PoolOf(g);
    ++found.copies[p];
    if (pools[p].holders(tree.block(found.match.partial, g)) == 0) --room[p];
  }
  for (size_t p = 0; p < pools.size(); ++p) {
    if (found.copies[p] <= room[p]) continue;
    found.match = matches.whole;
    CountIdle(found);
    return found;
  }
  return found;
}

PrefixPeek KvCache::Peek(std::span<const int32_t> tokens, int64_t most, uint64_t root,
                         int64_t n_prompt) const {
  const Impl::Found found = impl_->Find(tokens, most, root, n_prompt);
  return {.n_tokens = found.match.n_tokens, .idle = found.idle};
}

// The whole blocks of a match.
void KvCache::Impl::HoldPath(KvSequence& s, const PrefixTree::Match& match) {
  const int64_t n_tokens = match.n_tokens;
  s.path.resize(static_cast<size_t>(n_tokens / layout.block_size()));
  s.n_prompts.resize(s.path.size());
  int32_t node = match.node;
  for (size_t b = s.path.size(); b-- > 0; node = tree.parent(node)) {
    s.path[b] = node;
    s.n_prompts[b] = tree.n_prompt(node);
  }
  tree.Lock(match.node);
  tree.Unlock(s.root);
  for (size_t r = 0; r < n_rules(); ++r) {
    const BlockRange kept = Kept(s, r, n_tokens);
    const int64_t last = std::min(kept.last, std::ssize(s.path));
    s.first[r] = std::min(kept.first, last);
    if (Rule(r).kind == KvGroupKind::kPacked) s.packed_done = last;
    for (const int32_t group : GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      s.tables[g].assign(static_cast<size_t>(s.first[r]), -1);
      for (int64_t b = s.first[r]; b < last; ++b) {
        s.tables[g].push_back(tree.block(s.path[static_cast<size_t>(b)], g));
        pools[PoolOf(g)].Hold(s.tables[g].back());
      }
    }
  }
}

void KvCache::Impl::CopyPartial(KvSequence& s, const PrefixTree::Match& match) {
  const int32_t source = match.partial;
  const int32_t n = static_cast<int32_t>(match.n_tokens % layout.block_size());
  const auto for_each_group = [&](const auto& visit) {
    for (size_t g = 0; g < n_groups(); ++g) {
      if (layout.groups()[g].kind != KvGroupKind::kPacked) visit(g, pools[PoolOf(g)]);
    }
  };
  tree.Lock(source);
  for_each_group([&](size_t g, BlockPool& pool) { pool.Hold(tree.block(source, g)); });
  for_each_group([&](size_t g, BlockPool&) {
    s.tables[g].push_back(TakeBlock(g));
    memory.CopyBlock(static_cast<int32_t>(PoolOf(g)), tree.block(source, g), s.tables[g].back());
    ++copies;
  });
  for_each_group([&](size_t g, BlockPool& pool) { pool.Release(tree.block(source, g)); });
  const std::span<const int32_t> tokens = tree.tokens(source);
  s.tail.assign(tokens.begin(), tokens.begin() + n);
  s.copied = n;
  s.copied_prompt = std::min(tree.n_prompt(source), n);
  tree.Unlock(source);
}

int64_t KvCache::Attach(SequenceHandle sequence, std::span<const int32_t> tokens, int64_t most,
                        int64_t n_prompt, bool counts) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  LUCID_CHECK(s.length == 0 && !s.swapped && s.path.empty());
  for (size_t r = 0; r < c.n_rules(); ++r) LUCID_CHECK(c.Size(s, r) == 0);
  if (!s.share) return 0;
  if (counts) ++c.prefix_lookups;
  const PrefixTree::Match match = c.Find(tokens, most, s.root_name, n_prompt).match;
  if (match.n_tokens == 0) return 0;
  if (counts) {
    ++c.prefix_hits;
    c.prefix_hit_tokens += match.n_tokens;
  }
  const bool partial = match.partial != PrefixTree::kNone;
  s.prompt_length =
      std::min(match.n_tokens, c.tree.prompt_length(partial ? match.partial : match.node));
  c.HoldPath(s, match);
  if (partial) c.CopyPartial(s, match);
  s.length = match.n_tokens;
  return s.length;
}

void KvCache::Impl::CutPath(KvSequence& s, int64_t n_blocks) {
  const int32_t old = LastNode(s);
  s.path.resize(static_cast<size_t>(n_blocks));
  s.n_prompts.resize(static_cast<size_t>(n_blocks));
  s.packed_done = std::min(s.packed_done, n_blocks);
  tree.Lock(LastNode(s));
  tree.Unlock(old);
}

void KvCache::Impl::LeaveTree(KvSequence& s) {
  if (s.root == PrefixTree::kNone) return;
  tree.Unlock(LastNode(s));
  s.root = PrefixTree::kNone;
  s.path.clear();
  s.packed_done = 0;
}

int32_t KvCache::Impl::PromptTokens(const KvSequence& s, int64_t block, int64_t n) const {
  if (block < std::ssize(s.n_prompts)) return s.n_prompts[static_cast<size_t>(block)];
  const int32_t by_position =
      static_cast<int32_t>(std::clamp<int64_t>(s.n_prompt - block * layout.block_size(), 0, n));
  if (s.copied == 0 || s.copied_prompt == s.copied) return std::max(by_position, s.copied);
  // Generated tokens came with the copy; tokens of the prompt may follow them.
  if (s.copied_prompt >= 0 && by_position <= s.copied) return s.copied_prompt;
  return PrefixTree::Mixed(s.copied_prompt, s.copied, std::max(by_position, s.copied));
}

// Gives the tree our blocks of a place, or takes those that it has: they hold the same bits.
void KvCache::Impl::Offer(KvSequence& s, size_t rule, int64_t block, int32_t node) {
  if (block < s.first[rule] || block >= Size(s, rule)) return;
  const bool known = tree.Has(node, Rule(rule));
  for (const int32_t group : GroupsOf(rule)) {
    const size_t g = static_cast<size_t>(group);
    int32_t& ours = s.tables[g][static_cast<size_t>(block)];
    if (!known) {
      tree.SetBlock(node, g, ours);
    } else if (const int32_t theirs = tree.block(node, g); theirs != ours) {
      pools[PoolOf(g)].Hold(theirs);
      pools[PoolOf(g)].Release(ours);
      ours = theirs;
    }
  }
}

void KvCache::Impl::Publish(KvSequence& s, std::span<const int32_t> tokens) {
  const int64_t size = layout.block_size();
  while ((std::ssize(s.path) + 1) * size <= s.length) {
    const int64_t b = std::ssize(s.path);
    const std::span<const int32_t> block =
        tokens.subspan(static_cast<size_t>(b * size), static_cast<size_t>(size));
    const int32_t n_prompt = PromptTokens(s, b, size);
    if (b == std::ssize(s.n_prompts)) {
      s.n_prompts.push_back(n_prompt);
      s.copied = s.copied_prompt = 0;
    }
    const int32_t parent = LastNode(s);
    int32_t node = tree.Child(parent, block, n_prompt);
    if (node == PrefixTree::kNone) node = tree.Insert(parent, block, n_prompt);
    tree.Lock(node);
    for (size_t r = 0; r < n_rules(); ++r) {
      if (Rule(r).kind != KvGroupKind::kPacked) Offer(s, r, b, node);
    }
    s.path.push_back(node);
    tree.Unlock(parent);
  }
  PublishPacked(s);
}

void KvCache::Impl::PublishPacked(KvSequence& s) {
  for (size_t r = 0; r < n_rules(); ++r) {
    if (Rule(r).kind != KvGroupKind::kPacked) continue;
    const int64_t last = std::min(Kept(s, r, s.length).last, std::ssize(s.path));
    for (; s.packed_done < last; ++s.packed_done) {
      Offer(s, r, s.packed_done, s.path[static_cast<size_t>(s.packed_done)]);
    }
  }
}

// The last, partial block of a sequence that ends. Not if another sequence still writes behind
// these tokens: it would have to copy the block.
void KvCache::Impl::PublishLeaf(KvSequence& s) {
  if (!s.share || s.tail.empty()) return;
  const int64_t b = std::ssize(s.path);
  if (b != s.length / layout.block_size()) return;
  for (size_t g = 0; g < n_groups(); ++g) {
    if (layout.groups()[g].kind == KvGroupKind::kPacked) continue;
    if (Known(g, s.tables[g][static_cast<size_t>(b)])) return;
  }
  const int32_t n_prompt = PromptTokens(s, b, std::ssize(s.tail));
  const int32_t parent = LastNode(s);
  if (tree.Covered(parent, s.tail, n_prompt)) return;
  if (tree.Child(parent, s.tail, n_prompt) != PrefixTree::kNone) return;
  const int32_t leaf = tree.Insert(parent, s.tail, n_prompt);
  for (size_t r = 0; r < n_rules(); ++r) {
    if (Rule(r).kind != KvGroupKind::kPacked) Offer(s, r, b, leaf);
  }
}

PoolCounts KvCache::SwapNeed(SequenceHandle sequence) const {
  const Impl& c = *impl_;
  const KvSequence& s = c.At(sequence);
  PoolCounts need{};
  for (size_t r = 0; r < c.n_rules(); ++r) {
    for (const int32_t group : c.GroupsOf(r)) {
      need[c.PoolOf(static_cast<size_t>(group))] += c.Kept(s, r, s.length).size();
    }
  }
  return need;
}

bool KvCache::SwapOut(SequenceHandle sequence) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  LUCID_CHECK(!s.swapped);
  const PoolCounts need = SwapNeed(sequence);
  for (size_t p = 0; p < c.pools.size(); ++p) {
    if (need[p] > c.swap.free(p)) return false;
  }
  std::vector<std::vector<int32_t>> slots(c.n_groups());
  std::array<int64_t, kMaxKvRules> first{};
  for (size_t r = 0; r < c.n_rules(); ++r) {
    const BlockRange kept = c.Kept(s, r, s.length);
    first[r] = kept.first;
    for (const int32_t group : c.GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      slots[g].assign(static_cast<size_t>(kept.first), -1);
      for (int64_t b = kept.first; b < kept.last; ++b) {
        slots[g].push_back(c.swap.Take(c.PoolOf(g)));
        c.memory.ReadBlock(static_cast<int32_t>(c.PoolOf(g)), s.tables[g][static_cast<size_t>(b)],
                           c.swap.Data(c.PoolOf(g), slots[g].back()));
        ++c.swapped_out_blocks;
      }
    }
  }
  c.ReleaseAll(s);
  c.LeaveTree(s);
  s.tables = std::move(slots);
  s.first = first;
  s.swapped = true;
  return true;
}

bool KvCache::SwapIn(SequenceHandle sequence) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  LUCID_CHECK(s.swapped);
  if (!Fits(SwapNeed(sequence), c.Available())) return false;
  for (size_t g = 0; g < c.n_groups(); ++g) {
    for (int32_t& entry : s.tables[g]) {
      if (entry < 0) continue;
      const int32_t slot = entry;
      entry = c.TakeBlock(g);
      c.memory.WriteBlock(static_cast<int32_t>(c.PoolOf(g)), entry, c.swap.Data(c.PoolOf(g), slot));
      c.swap.Give(c.PoolOf(g), slot);
      ++c.swapped_in_blocks;
    }
  }
  s.swapped = false;
  s.maybe_shared = false;
  // The next Commit goes the way through the tree again and exchanges what is still there.
  if (s.share) s.root = c.tree.LockRoot(s.root_name);
  return true;
}

}  // namespace lucid
