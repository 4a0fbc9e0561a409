#include "kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/kv_cache_impl.h"

namespace lucid {
namespace {

std::vector<BlockPool> MakePools(const KvLayout& layout, const PoolCounts& n_blocks) {
  std::vector<BlockPool> pools;
  for (size_t p = 0; p < layout.pools().size(); ++p) pools.emplace_back(n_blocks[p]);
  return pools;
}

}  // namespace

KvCache::Impl::Impl(const KvLayout& layout_in, const KvCacheOptions& options_in,
                    KvMemory& memory_in, SwapSpace swap_in)
    : layout(layout_in),
      options(options_in),
      memory(memory_in),
      pools(MakePools(layout, options.n_blocks)),
      tree(layout, pools),
      swap(std::move(swap_in)) {}

KvSequence& KvCache::Impl::At(SequenceHandle sequence) {
  return const_cast<KvSequence&>(std::as_const(*this).At(sequence));
}

const KvSequence& KvCache::Impl::At(SequenceHandle sequence) const {
  const size_t i = static_cast<size_t>(sequence);
  LUCID_CHECK(sequence >= 0 && i < sequences.size() && sequences[i].open,
              "KV sequence {} is not open", sequence);
  return sequences[i];
}

SequenceHandle KvCache::Impl::New() {
  if (unused.empty()) {
    unused.push_back(static_cast<SequenceHandle>(sequences.size()));
    sequences.emplace_back().tables.resize(n_groups());
  }
  const SequenceHandle sequence = unused.back();
  unused.pop_back();
  sequences[static_cast<size_t>(sequence)].open = true;
  ++n_open;
  return sequence;
}

int32_t KvCache::Impl::TakeBlock(size_t group) {
  const int32_t block = pools[PoolOf(group)].Take();
  LUCID_CHECK(block >= 0, "pool {} has no block left", PoolOf(group));
  return block;
}

void KvCache::Impl::ReplaceByCopy(KvSequence& s, size_t group, int64_t block) {
  int32_t& entry = s.tables[group][static_cast<size_t>(block)];
  const int32_t copy = TakeBlock(group);
  memory.CopyBlock(static_cast<int32_t>(PoolOf(group)), entry, copy);
  pools[PoolOf(group)].Release(entry);
  entry = copy;
  ++copies;
}

int64_t KvCache::Impl::WriteBlock(const KvSequence& s, size_t rule) const {
  // A packed block is written as a whole, in the step for which it was taken.
  if (Rule(rule).kind == KvGroupKind::kPacked) return -1;
  const int64_t place = Places(s, rule, s.length);
  if (place % layout.block_size() == 0) return -1;
  const int64_t block = place / layout.block_size();
  return block < Size(s, rule) ? block : -1;
}

PoolCounts KvCache::Impl::Need(const KvSequence& s, int64_t n_tokens) const {
  PoolCounts need{};
  if (n_tokens <= s.length) return need;
  for (size_t r = 0; r < n_rules(); ++r) {
    const BlockRange needed =
        layout.Needed(Rule(r), Places(s, r, s.length), Places(s, r, n_tokens));
    const int64_t missing = std::max<int64_t>(0, needed.last - Size(s, r));
    const int64_t written = s.maybe_shared ? WriteBlock(s, r) : -1;
    for (const int32_t group : GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      need[PoolOf(g)] += missing;
      if (written >= 0 && Known(g, s.tables[g][static_cast<size_t>(written)])) ++need[PoolOf(g)];
    }
  }
  return need;
}

bool KvCache::Impl::Reserve(KvSequence& s, int64_t n_tokens) {
  if (n_tokens <= s.length) return true;
  bool enough = !s.maybe_shared;
  for (size_t r = 0; r < n_rules() && enough; ++r) {
    const int64_t places = Places(s, r, n_tokens);
    enough = layout.Needed(Rule(r), places, places).last <= Size(s, r);
  }
  if (enough) return true;
  if (!Fits(Need(s, n_tokens), Available())) return false;
  for (size_t r = 0; r < n_rules(); ++r) {
    const int64_t places = Places(s, r, n_tokens);
    const int64_t last = layout.Needed(Rule(r), places, places).last;
    const int64_t written = s.maybe_shared ? WriteBlock(s, r) : -1;
    for (const int32_t group : GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      if (written >= 0 && Known(g, s.tables[g][static_cast<size_t>(written)])) {
        ReplaceByCopy(s, g, written);
      }
      while (std::ssize(s.tables[g]) < last) s.tables[g].push_back(TakeBlock(g));
    }
  }
  s.maybe_shared = false;
  return true;
}

void KvCache::Impl::Shrink(KvSequence& s, size_t rule, int64_t size) {
  const int64_t n_blocks = Size(s, rule);
  if (size >= n_blocks) return;
  for (const int32_t group : GroupsOf(rule)) {
    const size_t g = static_cast<size_t>(group);
    for (int64_t b = n_blocks - 1; b >= std::max(size, s.first[rule]); --b) {
      pools[PoolOf(g)].Release(s.tables[g][static_cast<size_t>(b)]);
    }
    s.tables[g].resize(static_cast<size_t>(size));
  }
}

void KvCache::Impl::LeaveWindow(KvSequence& s, size_t rule, int64_t first) {
  if (first <= s.first[rule]) return;
  LUCID_CHECK(first <= Size(s, rule));
  for (const int32_t group : GroupsOf(rule)) {
    const size_t g = static_cast<size_t>(group);
    for (int64_t b = s.first[rule]; b < first; ++b) {
      int32_t& entry = s.tables[g][static_cast<size_t>(b)];
      pools[PoolOf(g)].Release(entry);
      entry = -1;
    }
  }
  s.first[rule] = first;
}

void KvCache::Impl::ReleaseAll(KvSequence& s) {
  int64_t n_blocks = 0;
  for (size_t r = 0; r < n_rules(); ++r) n_blocks = std::max(n_blocks, Size(s, r));
  for (int64_t b = n_blocks - 1; b >= 0; --b) {
    for (size_t r = 0; r < n_rules(); ++r) {
      if (b < s.first[r] || b >= Size(s, r)) continue;
      for (const int32_t group : GroupsOf(r)) {
        const size_t g = static_cast<size_t>(group);
        pools[PoolOf(g)].Release(s.tables[g][static_cast<size_t>(b)]);
      }
    }
  }
  for (std::vector<int32_t>& table : s.tables) table.clear();
  s.first = {};
}

Result<std::unique_ptr<KvCache>> KvCache::Create(const KvLayout& layout,
                                                 const KvCacheOptions& options, KvMemory& memory) {
  LUCID_ASSIGN_OR_RETURN(SwapSpace swap, SwapSpace::Create(layout, options.swap_blocks));
  return std::unique_ptr<KvCache>(
      new KvCache(std::make_unique<Impl>(layout, options, memory, std::move(swap))));
}

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::~KvCache() = default;

const KvLayout& KvCache::layout() const {
  return impl_->layout;
}
const KvCacheOptions& KvCache::options() const {
  return impl_->options;
}

SequenceHandle KvCache::Open(bool share, uint64_t root) {
  const SequenceHandle sequence = impl_->New();
  KvSequence& s = impl_->At(sequence);
  s.share = share && impl_->options.prefix_sharing;
  s.root_name = root;
  if (s.share) s.root = impl_->tree.LockRoot(root);
  return sequence;
}

SequenceHandle KvCache::Fork(SequenceHandle sequence) {
  Impl& c = *impl_;
  const SequenceHandle twin = c.New();
  KvSequence& from = c.At(sequence);
  KvSequence& to = c.At(twin);
  LUCID_CHECK(!from.swapped, "KV sequence {} is swapped out and cannot be forked", sequence);
  to = from;
  // What was reserved for the tokens after `length` stays with the parent.
  for (size_t r = 0; r < c.n_rules(); ++r) {
    const BlockRange kept = c.Kept(from, r, from.length);
    to.first[r] = kept.first;
    for (const int32_t group : c.GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      to.tables[g].resize(static_cast<size_t>(kept.last));
      std::fill_n(to.tables[g].begin(), kept.first, -1);
      for (int64_t b = kept.first; b < kept.last; ++b) {
        c.pools[c.PoolOf(g)].Hold(to.tables[g][static_cast<size_t>(b)]);
      }
    }
  }
  if (to.share) c.tree.Lock(c.LastNode(to));
  from.maybe_shared = to.maybe_shared = true;
  return twin;
}

void KvCache::Close(SequenceHandle sequence) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  if (s.swapped) {
    for (size_t g = 0; g < c.n_groups(); ++g) {
      for (const int32_t slot : s.tables[g]) {
        if (slot >= 0) c.swap.Give(c.PoolOf(g), slot);
      }
      s.tables[g].clear();
    }
  } else {
    c.PublishLeaf(s);
    c.ReleaseAll(s);
    c.LeaveTree(s);
  }
  std::vector<std::vector<int32_t>> tables = std::move(s.tables);  // keeps its memory
  s = KvSequence{};
  s.tables = std::move(tables);
  c.unused.push_back(sequence);
  --c.n_open;
}

PoolCounts KvCache::Need(SequenceHandle sequence, int64_t n_tokens) const {
  const KvSequence& s = impl_->At(sequence);
  LUCID_CHECK(!s.swapped);
  return impl_->Need(s, n_tokens);
}

bool KvCache::Reserve(SequenceHandle sequence, int64_t n_tokens) {
  KvSequence& s = impl_->At(sequence);
  LUCID_CHECK(!s.swapped);
  return impl_->Reserve(s, n_tokens);
}

bool KvCache::ReserveRestored(SequenceHandle sequence, int64_t n_tokens) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  LUCID_CHECK(s.length == 0 && !s.swapped);
  for (size_t r = 0; r < c.n_rules(); ++r) LUCID_CHECK(c.Size(s, r) == 0);
  if (!Fits(c.layout.BlocksFor(n_tokens, n_tokens), c.Available())) return false;
  for (size_t r = 0; r < c.n_rules(); ++r) {
    const BlockRange kept = c.Kept(s, r, n_tokens);
    s.first[r] = kept.first;
    for (const int32_t group : c.GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      s.tables[g].assign(static_cast<size_t>(kept.first), -1);
      while (std::ssize(s.tables[g]) < kept.last) s.tables[g].push_back(c.TakeBlock(g));
    }
  }
  return true;
}

void KvCache::Commit(SequenceHandle sequence, std::span<const int32_t> tokens, int64_t n_computed,
                     int64_t n_prompt) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  const int64_t size = c.layout.block_size();
  LUCID_CHECK(!s.swapped && n_computed >= s.length && n_computed <= std::ssize(tokens));
  for (size_t r = 0; r < c.n_rules(); ++r) {
    LUCID_CHECK(c.Kept(s, r, n_computed).last <= c.Size(s, r),
                "{} tokens are committed, {} blocks reserved", n_computed, c.Size(s, r));
  }
  s.n_prompt = n_prompt;
  if (s.prompt_length == s.length) {
    s.prompt_length = std::max(s.prompt_length, std::min(n_prompt, n_computed));
  }
  if (s.share) {
    const int64_t tail_start = n_computed / size * size;
    if (tail_start > s.length) s.tail.clear();  // a block was filled
    const int64_t known = tail_start + std::ssize(s.tail);
    s.tail.insert(s.tail.end(), tokens.begin() + known, tokens.begin() + n_computed);
  }
  s.length = n_computed;
  if (s.share) c.Publish(s, tokens);
  for (size_t r = 0; r < c.n_rules(); ++r) {
    if (c.Rule(r).kind == KvGroupKind::kWindow) {
      c.LeaveWindow(s, r, c.Kept(s, r, n_computed).first);
    }
  }
}

void KvCache::Truncate(SequenceHandle sequence, int64_t n_tokens) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  LUCID_CHECK(!s.swapped && n_tokens >= s.dropped && n_tokens <= s.length);
  for (size_t r = 0; r < c.n_rules(); ++r) {
    const BlockRange kept = c.Kept(s, r, n_tokens);
    LUCID_CHECK(kept.first >= s.first[r] || kept.size() == 0,
                "{} tokens of {} are kept, whose window starts at block {}", n_tokens, s.length,
                s.first[r]);
    c.Shrink(s, r, kept.last);
  }
  if (n_tokens == s.length) return;
  const int64_t whole = n_tokens / c.layout.block_size();
  const int32_t rest = static_cast<int32_t>(n_tokens % c.layout.block_size());
  if (s.share && std::ssize(s.path) < s.length / c.layout.block_size()) {
    // Just restored: which tokens its blocks hold is not known yet, so nobody can share them.
    c.LeaveTree(s);
    s.share = false;
  } else if (s.share && std::ssize(s.path) > whole) {
    const std::span<const int32_t> tokens = c.tree.tokens(s.path[static_cast<size_t>(whole)]);
    s.tail.assign(tokens.begin(), tokens.begin() + rest);
    s.copied = rest;
    s.copied_prompt = std::min(s.n_prompts[static_cast<size_t>(whole)], rest);
    c.CutPath(s, whole);
  } else if (s.share) {
    s.tail.resize(static_cast<size_t>(rest));
    s.copied = std::min(s.copied, rest);
    s.copied_prompt = std::min(s.copied_prompt, s.copied);
  }
  s.length = n_tokens;
  s.prompt_length = std::min(s.prompt_length, n_tokens);
  s.maybe_shared = true;
}

void KvCache::DropPlaces(SequenceHandle sequence, int64_t n_places) {
  Impl& c = *impl_;
  KvSequence& s = c.At(sequence);
  const int64_t places = s.length - s.dropped;
  LUCID_CHECK(!s.share && !s.swapped && n_places >= 0 && n_places <= places);
  s.dropped += places - n_places;
  for (size_t r = 0; r < c.n_rules(); ++r) {
    if (c.Rule(r).kind != KvGroupKind::kFull) continue;
    c.Shrink(s, r, c.Kept(s, r, s.length).last);
    for (const int32_t group : c.GroupsOf(r)) {
      const size_t g = static_cast<size_t>(group);
      for (const int32_t block : s.tables[g]) {
        LUCID_CHECK(!c.Known(g, block), "rows were moved in block {}, which others hold", block);
      }
    }
  }
}

int64_t KvCache::length(SequenceHandle sequence) const {
  return impl_->At(sequence).length;
}
int64_t KvCache::dropped(SequenceHandle sequence) const {
  return impl_->At(sequence).dropped;
}
int64_t KvCache::prompt_length(SequenceHandle sequence) const {
  return impl_->At(sequence).prompt_length;
}
bool KvCache::swapped(SequenceHandle sequence) const {
  return impl_->At(sequence).swapped;
}

std::span<const int32_t> KvCache::Table(SequenceHandle sequence, size_t group) const {
  const KvSequence& s = impl_->At(sequence);
  LUCID_CHECK(!s.swapped, "KV sequence {} is swapped out", sequence);
  return s.tables[group];
}

PoolCounts KvCache::Releases(SequenceHandle sequence) const {
  const Impl& c = *impl_;
  const KvSequence& s = c.At(sequence);
  PoolCounts blocks{};
  if (s.swapped) return blocks;
  for (size_t g = 0; g < c.n_groups(); ++g) {
    const BlockPool& pool = c.pools[c.PoolOf(g)];
    for (const int32_t block : s.tables[g]) {
      if (block >= 0 && pool.holders(block) == 1) ++blocks[c.PoolOf(g)];
    }
  }
  return blocks;
}

int64_t KvCache::bytes(SequenceHandle sequence) const {
  const Impl& c = *impl_;
  const KvSequence& s = c.At(sequence);
  int64_t bytes = 0;
  for (size_t r = 0; r < c.n_rules(); ++r) {
    for (const int32_t group : c.GroupsOf(r)) {
      const size_t pool = c.PoolOf(static_cast<size_t>(group));
      bytes += (c.Size(s, r) - s.first[r]) * c.layout.pools()[pool].block_bytes;
    }
  }
  return bytes;
}

PoolCounts KvCache::available() const {
  return impl_->Available();
}

const KvMemory& KvCache::memory() const {
  return impl_->memory;
}
KvMemory& KvCache::memory() {
  return impl_->memory;
}

KvCacheStats KvCache::stats() const {
  const Impl& c = *impl_;
  KvCacheStats stats{.sequences = c.n_open,
                     .prefix_lookups = c.prefix_lookups,
                     .prefix_hits = c.prefix_hits,
                     .prefix_hit_tokens = c.prefix_hit_tokens,
                     .copies = c.copies,
                     .swapped_out_blocks = c.swapped_out_blocks,
                     .swapped_in_blocks = c.swapped_in_blocks};
  for (size_t p = 0; p < c.pools.size(); ++p) {
    const BlockPool& pool = c.pools[p];
    stats.total[p] = pool.total();
    stats.free[p] = pool.free();
    stats.cached[p] = pool.cached();
    stats.held[p] = pool.held();
    stats.swapped[p] = c.swap.used(p);
    stats.evicted_blocks += pool.evictions();
    stats.held_bytes += pool.held() * c.layout.pools()[p].block_bytes;
  }
  const int64_t size = c.layout.block_size();
  for (const KvSequence& s : c.sequences) {
    if (!s.open || s.swapped) continue;
    for (size_t r = 0; r < c.n_rules(); ++r) {
      const int64_t n_groups = std::ssize(c.GroupsOf(r));
      const int64_t reserved = (c.Size(s, r) - s.first[r]) * size;
      const int64_t places = c.Rule(r).kind == KvGroupKind::kPacked
                                 ? c.Kept(s, r, s.length).last * size
                                 : c.Places(s, r, s.length);
      const int64_t used = std::clamp<int64_t>(places - s.first[r] * size, 0, reserved);
      stats.used_positions += used * n_groups;
      stats.reserved_positions += reserved * n_groups;
      stats.worst_waste = std::max(stats.worst_waste, reserved - used);
    }
  }
  return stats;
}

}  // namespace lucid
