#include "text/trie.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lucid {

Trie::Trie() : values_{kNone} {
  first_.fill(kNone);
}

void Trie::Reserve(size_t bytes) {
  Grow(bytes);
}

size_t Trie::Slot(uint64_t key) const {
  uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 29;
  size_t at = hash & mask_;
  while (edges_[at].key != kFree && edges_[at].key != key) at = (at + 1) & mask_;
  return at;
}

void Trie::Grow(size_t edges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, edges * 2));
  if (slots <= edges_.size()) return;
  std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(slots));
  mask_ = slots - 1;
  for (const Edge& edge : old) {
    if (edge.key != kFree) edges_[Slot(edge.key)] = edge;
  }
}

int32_t Trie::Child(int32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  if (edges_.empty()) return kNone;
  return edges_[Slot(static_cast<uint64_t>(node) << 8 | byte)].child;
}

void Trie::Insert(std::string_view key, int32_t value) {
  if (key.empty()) return;
  int32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t child = Child(node, byte);
    if (child == kNone) {
      child = static_cast<int32_t>(values_.size());
      values_.push_back(kNone);
      if (node == 0) {
        first_[byte] = child;
      } else {
        Grow(++n_edges_);
        const uint64_t edge = static_cast<uint64_t>(node) << 8 | byte;
        edges_[Slot(edge)] = {edge, child};
      }
    }
    node = child;
  }
  int32_t& slot = values_[static_cast<size_t>(node)];
  if (slot == kNone) slot = value;
}

}  // namespace lucid
