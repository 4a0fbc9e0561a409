// Query tiles of attention-inl.h: which rows go through the cache together, and which places of
// which pages they read.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/kv_place.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kChunk = 64;  // places that are loaded at a time
constexpr int64_t kPiece =
    512;  // places whose softmax is summed by itself, then merged with others
constexpr int64_t kMaxQueries = 256;  // rows of a tile
constexpr int64_t kMinRows = 16;      // of a tile, if there are as many

// Query rows that one thread takes through the cache together: `tokens` tokens from `token`, each
// with query heads [head, head + heads), all of one KV head. At most kMaxQueries rows.
struct QueryTile {
  int64_t token;
  int64_t tokens;
  int64_t head;
  int64_t heads;
  int64_t kv_head;
};
inline int64_t RowsOf(const QueryTile& t) {
  return t.tokens * t.heads;
}

inline int64_t FirstKey(const AttentionArgs& a, int64_t place) {
  return a.window > 0 && place >= a.window ? place - a.window + 1 : 0;
}

// The arrays of the cache, sizes worked out.
struct CacheArrays {
  KvArray keys, values;
  KvArray recent_keys, recent_values;  // kivi2 only
  bool kivi;
  bool v_in_k;
};
inline CacheArrays ArraysOf(const KvView& kv) {
  CacheArrays c = {KeysOf(kv, kv.pages), ValuesOf(kv, kv.pages), {}, {}, HasRecent(kv), kv.v_in_k};
  if (c.kivi) {
    c.recent_keys = KeysOf(kv, kv.recent);
    c.recent_values = ValuesOf(kv, kv.recent);
  }
  return c;
}

// Where the keys of a token lie.
struct KeySource {
  const int32_t* table;
  const int32_t* recent;  // kivi2
  int64_t packed;         // kivi2: blocks before this one are read from the packed pages
};
inline KeySource SourceOf(const KvView& kv, const StepView& step, int64_t token, int64_t place) {
  const int32_t sequence = step.sequence[token];
  if (!HasRecent(kv)) return {step.Table(kv.pages, sequence), nullptr, 0};
  return {step.Table(kv.pages, sequence), step.Table(kv.recent, sequence), PackedBlocks(kv, place)};
}

// Neighbouring tokens of a tile with the same key source; together they see places [first, last].
struct Span {
  KeySource source;
  int64_t first;
  int64_t last;
  int64_t row;  // the first of its rows in the tile
  int64_t end;  // and behind the last
};

struct Places {
  int64_t from;
  int64_t to;
};
// What a span sees of the chunk that starts at `base`, relative to it.
inline Places PartOf(const Span& span, int64_t base) {
  const int64_t to = Least(kChunk, span.last + 1 - base);
  return {span.first > base ? span.first - base : 0, to > 0 ? to : 0};
}

// Whether two sources lead to the same pages for places [begin, end).
inline bool SameKeys(const CacheArrays& c, const KeySource& x, const KeySource& y, int64_t begin,
                     int64_t end) {
  const int64_t last = (end - 1) / c.keys.block_size;
  for (int64_t block = begin / c.keys.block_size; block <= last; ++block) {
    const bool x_recent = c.kivi && block >= x.packed;
    const bool y_recent = c.kivi && block >= y.packed;
    if (x_recent != y_recent) return false;
    if ((x_recent ? x.recent : x.table)[block] != (y_recent ? y.recent : y.table)[block]) {
      return false;
    }
  }
  return true;
}

// What the rows of a tile read.
struct TileKeys {
  Span spans[kMaxQueries];
  Places seen[kMaxQueries];  // by row
  int64_t n = 0;             // spans
};
inline void FindKeys(const AttentionArgs& a, const StepView& step, const QueryTile& t,
                     TileKeys* keys) {
  for (int64_t i = 0; i < t.tokens; ++i) {
    const int64_t token = t.token + i;
    const int64_t place = PlaceOf(a.kv, step, token);
    const int64_t first = FirstKey(a, place);
    const int64_t row = i * t.heads;
    for (int64_t r = row; r < row + t.heads; ++r) keys->seen[r] = {first, place + 1};
    const KeySource source = SourceOf(a.kv, step, token, place);
    if (keys->n > 0) {
      Span& span = keys->spans[keys->n - 1];
      if (span.source.table == source.table && span.source.packed == source.packed) {
        span.first = Least(span.first, first);
        span.last = place > span.last ? place : span.last;
        span.end += t.heads;
        continue;
      }
    }
    keys->spans[keys->n++] = {source, first, place, row, row + t.heads};
  }
}

// One head's keys and values in one block.
struct HeadRows {
  const KvArray& keys;
  const KvArray& values;
  const uint8_t* k;
  const uint8_t* v;
};
inline HeadRows HeadIn(const CacheArrays& c, const KeySource& source, int64_t block,
                       int64_t kv_head) {
  const bool recent = c.kivi && block >= source.packed;
  const int64_t page = (recent ? source.recent : source.table)[block];
  const KvArray& keys = recent ? c.recent_keys : c.keys;
  const KvArray& values = recent ? c.recent_values : c.values;
  return {keys, values, reinterpret_cast<const uint8_t*>(HeadOf(keys, page, kv_head)),
          reinterpret_cast<const uint8_t*>(HeadOf(values, page, kv_head))};
}

// Whether two tokens are computed with the same arithmetic.
inline bool SamePhase(const StepView& step, int64_t token, int64_t other) {
  return step.phases == nullptr || step.phases[token] == step.phases[other];
}

// Whether two neighbouring tokens of different sequences begin with the same keys: then they share
// a prefix, and it pays to take them through the cache together.
inline bool SharePrefix(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                        int64_t token, int64_t next) {
  const int64_t place = PlaceOf(a.kv, step, token);
  const int64_t next_place = PlaceOf(a.kv, step, next);
  const int64_t first = FirstKey(a, place);
  const int64_t end = (first / kChunk + 1) * kChunk;
  return FirstKey(a, next_place) == first && end <= place && end <= next_place &&
         SameKeys(c, SourceOf(a.kv, step, token, place), SourceOf(a.kv, step, next, next_place),
                  first, end);
}

// The end of the tile that begins at `token`: at most `most` tokens of one sequence, or
// `most_shared` of several that share a prefix.
inline int64_t TileEnd(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                       int64_t token, int64_t most, int64_t most_shared) {
  int64_t end = token + 1;
  for (; end < step.n_tokens && end - token < most; ++end) {
    if (!SamePhase(step, end - 1, end)) break;
    if (step.sequence[end] == step.sequence[end - 1]) continue;
    if (end - token >= most_shared || WantsScores(a, step, step.sequence[end]) ||
        !SharePrefix(a, step, c, end - 1, end)) {
      break;
    }
    most = Least(most, most_shared);
  }
  return end;
}

}  // namespace
}  // namespace lucid::LUCID_ISA
