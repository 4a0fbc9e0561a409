#include "kv/prefix_tree.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace lucid {
namespace {

// So many siblings, the newest first, are compared token by token where no block matches as a
// whole; a root may have any number of them.
constexpr int kMostCompared = 64;

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // of hashes: 2^64 / golden ratio

}  // namespace

int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

PrefixTree::PrefixTree(const KvLayout& layout, std::vector<BlockPool>& pools)
    : layout_(layout), pools_(pools), buckets_(64, kNone) {
  for (size_t p = 0; p < pools.size(); ++p) {
    owners_.emplace_back(static_cast<size_t>(pools[p].total()));
    pools[p].OnEvict([this, p](int32_t block) { Evicted(p, block); });
  }
}

std::span<const int32_t> PrefixTree::tokens(int32_t node) const {
  const size_t size = static_cast<size_t>(layout_.block_size());
  return std::span(tokens_).subspan(static_cast<size_t>(node) * size,
                                    static_cast<size_t>(At(node).n_tokens));
}

// A multiply-and-shift hash over the parent and each token; equal keys are compared in full.
uint64_t PrefixTree::KeyOf(int32_t parent, std::span<const int32_t> tokens) const {
  uint64_t key = static_cast<uint64_t>(parent) + kMultiplier;
  for (const int32_t token : tokens) {
    key = (key ^ static_cast<uint32_t>(token)) * kMultiplier;
    key ^= key >> 29;
  }
  return key;
}

int32_t PrefixTree::Mixed(int32_t copied_prompt, int32_t copied, int32_t n_prompt) {
  uint64_t mark = 0;
  for (const int32_t part : {copied_prompt, copied, n_prompt}) {
    mark = (mark ^ static_cast<uint32_t>(part)) * kMultiplier;
    mark ^= mark >> 29;
  }
  return -1 - static_cast<int32_t>(mark >> 33);
}

void PrefixTree::Rehash() {
  buckets_.assign(buckets_.size() * 2, kNone);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (!node.used || node.n_tokens == 0) continue;
    node.next_in_bucket = Bucket(node.key);
    Bucket(node.key) = static_cast<int32_t>(i);
  }
}

int32_t PrefixTree::NewNode(int32_t parent) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.emplace_back();
    tokens_.resize(nodes_.size() * static_cast<size_t>(layout_.block_size()));
    blocks_.resize(nodes_.size() * layout_.groups().size(), -1);
  }
  const int32_t id = unused_.back();
  unused_.pop_back();
  ++n_nodes_;
  Node& node = At(id);
  node = Node{.used = true, .parent = parent};
  if (parent == kNone) return id;
  Node& above = At(parent);
  node.depth = above.depth + 1;
  node.next_sibling = above.first_child;
  if (above.first_child != kNone) At(above.first_child).prev_sibling = id;
  above.first_child = id;
  return id;
}

int32_t PrefixTree::LockRoot(uint64_t root) {
  const auto [it, added] = roots_.try_emplace(root, kNone);
  if (added) {
    it->second = NewNode(kNone);
    At(it->second).key = root;
  }
  Lock(it->second);
  return it->second;
}

void PrefixTree::Unlock(int32_t node) {
  LUCID_CHECK(At(node).locks > 0);
  if (--At(node).locks == 0) Prune(node);
}

bool PrefixTree::SameTokens(int32_t node, int32_t parent, uint64_t key,
                            std::span<const int32_t> tokens) const {
  return At(node).key == key && At(node).parent == parent &&
         std::ranges::equal(this->tokens(node), tokens);
}

int32_t PrefixTree::Child(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt) const {
  const uint64_t key = KeyOf(parent, tokens);
  for (int32_t node = Bucket(key); node != kNone; node = At(node).next_in_bucket) {
    if (At(node).n_prompt == n_prompt && SameTokens(node, parent, key, tokens)) return node;
  }
  return kNone;
}

int32_t PrefixTree::Insert(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt) {
  LUCID_CHECK(!tokens.empty() && std::ssize(tokens) <= layout_.block_size());
  if (static_cast<size_t>(n_nodes_) >= buckets_.size()) Rehash();
  const int32_t id = NewNode(parent);
  Node& node = At(id);
  node.n_tokens = static_cast<int32_t>(tokens.size());
  node.n_prompt = n_prompt;
  const int64_t before = (node.depth - 1) * layout_.block_size();
  node.prompt_length = At(parent).prompt_length;
  if (node.prompt_length == before && n_prompt >= 0) node.prompt_length += n_prompt;
  std::ranges::copy(tokens, tokens_.begin() + id * layout_.block_size());
  node.key = KeyOf(parent, tokens);
  node.next_in_bucket = Bucket(node.key);
  Bucket(node.key) = id;

  // What the new child says better.
  int32_t sibling = node.next_sibling;
  for (int i = 0; i < kMostCompared && sibling != kNone; ++i) {
    const int32_t next = At(sibling).next_sibling;
    if (At(sibling).n_tokens < node.n_tokens && At(sibling).locks == 0 &&
        At(sibling).prompt_length <= node.prompt_length &&
        CommonPrefix(this->tokens(sibling), tokens) == At(sibling).n_tokens) {
      Remove(sibling);
    }
    sibling = next;
  }
  return id;
}

bool PrefixTree::Covered(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt) const {
  const int64_t before = int64_t{At(parent).depth} * layout_.block_size();
  int64_t prompt_length = At(parent).prompt_length;
  if (prompt_length == before && n_prompt >= 0) prompt_length += n_prompt;
  int32_t child = At(parent).first_child;
  for (int i = 0; i < kMostCompared && child != kNone; ++i, child = At(child).next_sibling) {
    if (At(child).prompt_length >= prompt_length &&
        CommonPrefix(this->tokens(child), tokens) == std::ssize(tokens)) {
      return true;
    }
  }
  return false;
}

void PrefixTree::SetBlock(int32_t node, size_t group, int32_t block) {
  const size_t pool = static_cast<size_t>(layout_.groups()[group].pool);
  LUCID_CHECK(blocks_[Entry(node, group)] < 0);
  blocks_[Entry(node, group)] = block;
  owners_[pool][static_cast<size_t>(block)] = {node, static_cast<int32_t>(group)};
  pools_[pool].Remember(block);
}

// How many of n_tokens matching tokens of a child may be used, if the first n_prompt of its block
// are to be of the prompt phase.
int64_t PrefixTree::Usable(int32_t child, int64_t n_tokens, int64_t n_prompt, bool strict) const {
  if (!strict) return n_tokens;
  const int64_t has = At(child).n_prompt;
  // Beyond the smaller of the two numbers phases differ, if they differ at all.
  return has == n_prompt ? n_tokens : std::clamp<int64_t>(std::min(has, n_prompt), 0, n_tokens);
}

// The child that continues the prefix by most tokens of `rest`, at most `most`. n_prompt: of the
// rest.
PrefixTree::Step PrefixTree::Next(int32_t node, std::span<const int32_t> rest, int64_t most,
                                  int64_t n_prompt, bool strict) const {
  const int64_t size = layout_.block_size();
  const int64_t goal = std::min(most, size);
  const int64_t wanted = std::clamp<int64_t>(n_prompt, 0, size);
  Step best;
  if (std::ssize(rest) >= size) {
    const std::span<const int32_t> block = rest.first(static_cast<size_t>(size));
    const uint64_t key = KeyOf(node, block);
    for (int32_t child = Bucket(key); child != kNone; child = At(child).next_in_bucket) {
      if (!SameTokens(child, node, key, block)) continue;
      const int64_t usable = Usable(child, goal, wanted, strict);
      // Of twins whose phases differ the one that would have been computed.
      if (usable > best.n_tokens || (usable == goal && At(child).n_prompt == wanted)) {
        best = {child, usable};
      }
    }
  }
  int32_t child = At(node).first_child;
  for (int i = 0; i < kMostCompared && child != kNone && best.n_tokens < goal;
       ++i, child = At(child).next_sibling) {
    const int64_t common = std::min(goal, CommonPrefix(tokens(child), rest));
    const int64_t usable =
        Usable(child, common, std::min(wanted, int64_t{At(child).n_tokens}), strict);
    if (usable > best.n_tokens) best = {child, usable};
  }
  return best;
}

PrefixTree::Matches PrefixTree::Longest(uint64_t root, std::span<const int32_t> tokens,
                                        int64_t most, int64_t n_prompt, bool strict) const {
  Matches found;
  const auto it = roots_.find(root);
  if (it == roots_.end()) return found;
  const int64_t size = layout_.block_size();
  most = std::min(most, std::ssize(tokens));
  int32_t node = it->second;
  found.best.node = found.whole.node = node;

  // By rule: how many blocks are there, up to the current one and without a gap. Windows count
  // backwards from it, other rules from the start.
  std::array<int64_t, kMaxKvRules> runs{};
  const auto valid = [&](int64_t n_tokens, int64_t n_blocks) {
    for (size_t r = 0; r < layout_.rules().size(); ++r) {
      const KvRule& rule = layout_.rules()[r];
      const BlockRange needed = layout_.Needed(rule, n_tokens, n_tokens);
      if (needed.size() == 0) continue;
      const bool there = rule.kind == KvGroupKind::kWindow ? needed.first >= n_blocks - runs[r]
                                                           : needed.last <= runs[r];
      if (!there) return false;
    }
    return true;
  };
  const auto consider = [&](int64_t n_tokens, int64_t n_blocks, int32_t child) {
    if (!valid(n_tokens, n_blocks)) return;
    if (n_tokens % size == 0) {
      found.best = found.whole = {.n_tokens = n_tokens, .node = child};
    } else {
      found.best = {.n_tokens = n_tokens, .node = node, .partial = child};
    }
  };

  for (int64_t depth = 0; depth * size < most; ++depth) {
    const int64_t before = depth * size;
    const Step step = Next(node, tokens.subspan(static_cast<size_t>(before)), most - before,
                           n_prompt - before, strict);
    if (step.n_tokens == 0) break;
    bool packed = false;
    for (size_t r = 0; r < layout_.rules().size(); ++r) {
      const KvRule& rule = layout_.rules()[r];
      const bool there = Has(step.child, rule);
      if (rule.kind == KvGroupKind::kWindow) {
        runs[r] = there ? runs[r] + 1 : 0;
      } else if (there && runs[r] == depth) {
        runs[r] = depth + 1;
      }
      packed = packed || rule.kind == KvGroupKind::kPacked;
    }
    const int64_t end = before + step.n_tokens;
    // A shorter prefix inside the block needs one packed block less, and nothing else less.
    const int64_t shorter = (end - kKiviResidual) / size * size + kKiviResidual - 1;
    if (packed && end >= kKiviResidual && shorter > before && shorter < end) {
      consider(shorter, depth + 1, step.child);
    }
    consider(end, depth + 1, step.child);
    if (step.n_tokens < size) break;
    node = step.child;
  }
  return found;
}

void PrefixTree::ForgetBlock(int32_t node, size_t group) {
  int32_t& block = blocks_[Entry(node, group)];
  if (block < 0) return;
  const size_t pool = static_cast<size_t>(layout_.groups()[group].pool);
  owners_[pool][static_cast<size_t>(block)].node = kNone;
  pools_[pool].Forget(block);
  block = -1;
}

bool PrefixTree::Empty(int32_t node) const {
  return std::ranges::none_of(layout_.rules(), [&](const KvRule& rule) { return Has(node, rule); });
}

void PrefixTree::Remove(int32_t node) {
  Node& n = At(node);
  LUCID_CHECK(n.used && n.locks == 0 && n.first_child == kNone, "node {} is in use", node);
  for (size_t g = 0; g < layout_.groups().size(); ++g) ForgetBlock(node, g);
  if (n.n_tokens == 0) {
    roots_.erase(n.key);
  } else {
    int32_t* link = &Bucket(n.key);
    while (*link != node) link = &At(*link).next_in_bucket;
    *link = n.next_in_bucket;
  }
  if (n.parent != kNone) {
    (n.prev_sibling == kNone ? At(n.parent).first_child : At(n.prev_sibling).next_sibling) =
        n.next_sibling;
    if (n.next_sibling != kNone) At(n.next_sibling).prev_sibling = n.prev_sibling;
  }
  n.used = false;
  unused_.push_back(node);
  --n_nodes_;
}

void PrefixTree::RemoveSubtree(int32_t node) {
  const int32_t stop = At(node).parent;
  while (node != stop) {
    while (At(node).first_child != kNone) node = At(node).first_child;
    const int32_t parent = At(node).parent;
    const bool last = At(node).next_sibling == kNone;
    const int32_t next = last ? parent : At(node).next_sibling;
    const bool is_top = parent == stop;
    Remove(node);
    if (is_top) return;
    node = next;
  }
}

void PrefixTree::Prune(int32_t node) {
  while (node != kNone && At(node).first_child == kNone && At(node).locks == 0 && Empty(node)) {
    const int32_t parent = At(node).parent;
    Remove(node);
    node = parent;
  }
}

// Without a block of every place nothing below the node can be used. Without a window's block, or
// a packed one, shorter or longer prefixes may be.
void PrefixTree::Evicted(size_t pool, int32_t block) {
  const Owner owner = owners_[pool][static_cast<size_t>(block)];
  LUCID_CHECK(owner.node != kNone, "block {} of pool {} was remembered by no node", block, pool);
  const KvGroup& group = layout_.groups()[static_cast<size_t>(owner.group)];
  const int32_t parent = At(owner.node).parent;
  if (group.kind == KvGroupKind::kFull) {
    RemoveSubtree(owner.node);
    Prune(parent);
    return;
  }
  for (const int32_t g : layout_.rules()[static_cast<size_t>(group.rule)].groups) {
    ForgetBlock(owner.node, static_cast<size_t>(g));
  }
  Prune(owner.node);
}

int64_t PrefixTree::all_locks() const {
  int64_t locks = 0;
  for (const Node& node : nodes_) locks += node.used ? node.locks : 0;
  return locks;
}

Status PrefixTree::CheckInvariants() const {
  int64_t used = 0;
  std::vector<int64_t> remembered(pools_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const int32_t id = static_cast<int32_t>(i);
    if (!node.used) continue;
    ++used;
    const bool root = node.n_tokens == 0;
    if (root != (node.parent == kNone) || (!root && !At(node.parent).used)) {
      return Err(ErrorCode::kInvalidArgument, "node {} hangs in the air", i);
    }
    if (!root && Child(node.parent, tokens(id), node.n_prompt) != id) {
      return Err(ErrorCode::kInvalidArgument, "node {} cannot be found, or has a twin", i);
    }
    if (node.n_tokens < layout_.block_size() && !root && node.first_child != kNone) {
      return Err(ErrorCode::kInvalidArgument, "node {} is a partial block with children", i);
    }
    if (node.first_child == kNone && node.locks == 0 && Empty(id)) {
      return Err(ErrorCode::kInvalidArgument, "node {} is of no use", i);
    }
    for (size_t g = 0; g < layout_.groups().size(); ++g) {
      const KvGroup& group = layout_.groups()[g];
      const int32_t b = block(id, g);
      if ((b >= 0) != Has(id, layout_.rules()[static_cast<size_t>(group.rule)])) {
        return Err(ErrorCode::kInvalidArgument, "node {} has blocks of a part of a rule", i);
      }
      if (group.kind == KvGroupKind::kFull && !root && b < 0) {
        return Err(ErrorCode::kInvalidArgument, "node {} lacks a block of full group {}", i, g);
      }
      if (b < 0) continue;
      const size_t pool = static_cast<size_t>(group.pool);
      const Owner& owner = owners_[pool][static_cast<size_t>(b)];
      ++remembered[pool];
      if (root || owner.node != id || owner.group != static_cast<int32_t>(g) ||
          !pools_[pool].remembered(b)) {
        return Err(ErrorCode::kInvalidArgument, "block {} of pool {} is not node {}'s alone", b,
                   pool, i);
      }
    }
  }
  if (used != n_nodes_) return Err(ErrorCode::kInvalidArgument, "{} nodes, not {}", used, n_nodes_);
  for (size_t p = 0; p < pools_.size(); ++p) {
    int64_t expected = 0;
    for (int32_t b = 0; b < pools_[p].total(); ++b) expected += pools_[p].remembered(b) ? 1 : 0;
    if (expected != remembered[p]) {
      return Err(ErrorCode::kInvalidArgument, "pool {} remembers {} blocks, the tree {}", p,
                 expected, remembered[p]);
    }
  }
  return {};
}

}  // namespace lucid
