#include "text/charsmap.h"

#include <cstring>

#include "text/unicode.h"

namespace lucid {
namespace {

// Clusters of this many bytes or more are never looked up whole.
constexpr size_t kMaxClusterBytes = 6;

// Fields of a darts-clone unit.
bool HasLeaf(uint32_t unit) {
  return (unit >> 8 & 1) == 1;
}
uint32_t Value(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t Label(uint32_t unit) {
  return unit & (1U << 31 | 0xFF);
}
uint32_t Offset(uint32_t unit) {
  return unit >> 10 << ((unit & 1U << 9) >> 6);
}

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < 4)
    return Err(ErrorCode::kInvalidFile, "precompiled_charsmap holds {} bytes, fewer than 4",
               blob.size());
  std::memcpy(&trie_bytes, blob.data(), 4);
  if (trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0) {
    return Err(ErrorCode::kInvalidFile,
               "precompiled_charsmap: a trie of {} bytes does not fit {} bytes", trie_bytes,
               blob.size());
  }
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  if (trie_bytes > 0) std::memcpy(map.units_.data(), blob.data() + 4, trie_bytes);
  map.texts_.assign(blob.substr(4 + trie_bytes));
  return map;
}

std::optional<std::string_view> Charsmap::Find(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  uint32_t node = Offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    if (node >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[node];
    if (Label(unit) != byte) return std::nullopt;
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const uint32_t start = Value(units_[node]);
    if (start > texts_.size()) return std::nullopt;
    return std::string_view(texts_.data() + start,
                            ::strnlen(texts_.data() + start, texts_.size() - start));
  }
  return std::nullopt;
}

std::string Charsmap::Apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    // [at, end) is one grapheme cluster.
    Utf8Char c = DecodeUtf8(text, at);
    size_t end = at + c.length;
    int32_t state = 0;
    while (end < text.size()) {
      const Utf8Char next = DecodeUtf8(text, end);
      if (IsGraphemeBreak(c.code, next.code, &state)) break;
      c = next;
      end += next.length;
    }
    const std::string_view cluster = text.substr(at, end - at);
    const auto whole = cluster.size() < kMaxClusterBytes ? Find(cluster) : std::nullopt;
    if (whole) {
      out += *whole;
    } else {
      for (size_t i = 0; i < cluster.size();) {
        const std::string_view one = cluster.substr(i, DecodeUtf8(cluster, i).length);
        out += Find(one).value_or(one);
        i += one.size();
      }
    }
    at = end;
  }
  return out;
}

}  // namespace lucid
