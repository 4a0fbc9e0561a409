// PrefixTree: which blocks hold the keys and values of which tokens.
//
// A node is one block of tokens behind its parent's. It has, for every group of the layout, the
// physical block that holds these tokens, or -1: what windows have left may have been needed for
// something else, and kivi2's packed blocks appear later. The groups of one rule have their blocks
// or lack them together. Nodes are made by sequences as they fill blocks; blocks that no sequence
// holds stay until their pool needs them (BlockPool::Take), which then tells the tree.
//
// What a block holds depends on its tokens, on everything before them, and on the phase (prompt or
// generated) in which each was computed. A node's identity is therefore its parent, its tokens and
// `n_prompt`, how many of its tokens came in the prompt phase (its first ones; see Mixed for
// others); blocks of one node have equal bits.
//
// Neighbours: kv_cache.h makes and takes nodes; block_pool.h decides what is forgotten.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/kv_layout.h"

namespace lucid {

// How many leading tokens two lists share.
int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b);

class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;
  // n_prompt of a block that begins with `copied` tokens of another, of which `copied_prompt` (an
  // n_prompt too) are of the prompt phase, and whose tokens from there to `n_prompt` are as well:
  // generated tokens that have become part of a prompt. A negative number that stands for this.
  static int32_t Mixed(int32_t copied_prompt, int32_t copied, int32_t n_prompt);

  // `layout` and `pools` must outlive the tree, which answers their evictions.
  PrefixTree(const KvLayout& layout, std::vector<BlockPool>& pools);
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // A prefix that the tree has all needed blocks of (KvLayout::Needed(g, n_tokens, n_tokens)).
  struct Match {
    int64_t n_tokens = 0;
    int32_t node = kNone;     // of the last whole block; the root if there is none
    int32_t partial = kNone;  // the node that holds the rest: n_tokens % block_size of its tokens
  };
  struct Matches {
    Match best;
    Match whole;  // the longest of whole blocks
  };
  // The longest prefix of `tokens`, at most `most` tokens, for somebody who would compute the first
  // n_prompt in the prompt phase and the others as generated ones. `strict`: only of tokens that
  // were computed in just these phases.
  Matches Longest(uint64_t root, std::span<const int32_t> tokens, int64_t most, int64_t n_prompt,
                  bool strict) const;

  // The node of no tokens under which those of `root` lie; made if needed, and locked.
  int32_t LockRoot(uint64_t root);
  // While locked, a node stays even if it has lost its blocks.
  void Lock(int32_t node) { ++At(node).locks; }
  void Unlock(int32_t node);

  // The child with exactly this identity, or kNone.
  int32_t Child(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt) const;
  // A new child without blocks; it must get some or be locked before anything else happens. Fewer
  // than block_size tokens make a leaf. Shorter leaves whose tokens the child begins with go.
  int32_t Insert(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt);
  // Whether a child of `parent` makes a leaf of these tokens superfluous.
  bool Covered(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt) const;
  // Tells what holds the node's tokens; the block must be held.
  void SetBlock(int32_t node, size_t group, int32_t block);

  int32_t block(int32_t node, size_t group) const { return blocks_[Entry(node, group)]; }
  bool Has(int32_t node, const KvRule& rule) const {
    return block(node, static_cast<size_t>(rule.groups.front())) >= 0;
  }
  int32_t parent(int32_t node) const { return At(node).parent; }
  std::span<const int32_t> tokens(int32_t node) const;
  int32_t n_prompt(int32_t node) const { return At(node).n_prompt; }
  // How many tokens from the root on, the node's included, are of the prompt phase without a break.
  int64_t prompt_length(int32_t node) const { return At(node).prompt_length; }
  int32_t locks(int32_t node) const { return At(node).locks; }
  int64_t all_locks() const;
  int64_t size() const { return n_nodes_; }  // roots included

  Status CheckInvariants() const;

 private:
  struct Node {
    bool used = false;
    int32_t parent = kNone;
    int32_t first_child = kNone;
    int32_t next_sibling = kNone;
    int32_t prev_sibling = kNone;
    int32_t next_in_bucket = kNone;
    int32_t n_tokens = 0;  // 0: a root
    int32_t n_prompt = 0;
    int32_t locks = 0;
    int32_t depth = 0;  // blocks in front of the node's end; 0 for a root
    int64_t prompt_length = 0;
    uint64_t key = 0;  // hash of parent and tokens; a root's name
  };
  struct Owner {
    int32_t node = kNone;
    int32_t group = 0;
  };
  // A child and how many of its tokens continue a prefix.
  struct Step {
    int32_t child = kNone;
    int64_t n_tokens = 0;
  };

  Node& At(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  size_t Entry(int32_t node, size_t group) const {
    return static_cast<size_t>(node) * layout_.groups().size() + group;
  }
  int32_t NewNode(int32_t parent);
  uint64_t KeyOf(int32_t parent, std::span<const int32_t> tokens) const;
  int32_t& Bucket(uint64_t key) { return buckets_[key & (buckets_.size() - 1)]; }
  int32_t Bucket(uint64_t key) const { return buckets_[key & (buckets_.size() - 1)]; }
  void Rehash();
  bool SameTokens(int32_t node, int32_t parent, uint64_t key,
                  std::span<const int32_t> tokens) const;
  int64_t Usable(int32_t child, int64_t n_tokens, int64_t n_prompt, bool strict) const;
  Step Next(int32_t node, std::span<const int32_t> rest, int64_t most, int64_t n_prompt,
            bool strict) const;

  void Evicted(size_t pool, int32_t block);
  void ForgetBlock(int32_t node, size_t group);
  bool Empty(int32_t node) const;
  void Remove(int32_t node);         // must have no children and no lock
  void RemoveSubtree(int32_t node);  // with everything below; none of it may be locked
  void Prune(int32_t node);          // removes it and its ancestors while they are of no use

  const KvLayout& layout_;
  std::vector<BlockPool>& pools_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;             // free entries of nodes_
  std::vector<int32_t> tokens_;             // [node][block_size]
  std::vector<int32_t> blocks_;             // [node][group]
  std::vector<int32_t> buckets_;            // by key; a power of two many
  std::vector<std::vector<Owner>> owners_;  // [pool][block]: where the block is remembered
  std::unordered_map<uint64_t, int32_t> roots_;
  int64_t n_nodes_ = 0;
};

}  // namespace lucid
