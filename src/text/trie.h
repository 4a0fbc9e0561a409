// Trie: all prefixes of a text that are in a set of byte strings. Used by unigram.h and
// added_tokens.h.
//
// One hash table of (node, byte) -> node; memory is proportional to the total length of the
// strings.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lucid {

class Trie {
 public:
  static constexpr int32_t kNone = -1;

  Trie();
  // Room for `bytes` bytes of keys in all, so that building does not rehash.
  void Reserve(size_t bytes);
  // Maps `key` to `value` (>= 0). A key that is there already keeps its value. An empty key is
  // ignored.
  void Insert(std::string_view key, int32_t value);
  bool empty() const { return values_.size() == 1; }

  int32_t root() const { return 0; }
  // The node after `byte`, or kNone.
  int32_t Child(int32_t node, unsigned char byte) const;
  // The value of the key that ends at `node`, or kNone.
  int32_t Value(int32_t node) const { return values_[static_cast<size_t>(node)]; }

 private:
  struct Edge {
    uint64_t key = kFree;  // node << 8 | byte
    int32_t child = kNone;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  size_t Slot(uint64_t key) const;
  void Grow(size_t edges);

  std::array<int32_t, 256> first_;  // children of the root
  std::vector<Edge> edges_;
  size_t mask_ = 0;
  size_t n_edges_ = 0;
  std::vector<int32_t> values_;
};

}  // namespace lucid
