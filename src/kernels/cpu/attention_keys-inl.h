// What the rows of an attention tile read, and how it gets from the paged cache to float rows in a
// thread's scratch. Used by attention-inl.h.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/kv_place.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kChunk = 64;  // places: keys and values of a chunk stay in the first-level cache
constexpr int64_t kMaxQueries =
    24;  // query rows that share a chunk: a multiple of every kTileTokens

// Rows of the cache tile that one thread works on, in its scratch.
struct AttentionScratchView {
  float* q;       // [kMaxQueries][k_pad], zero padded
  float* k;       // [kChunk][k_pad], zero padded
  float* v;       // [kChunk][v_pad]
  float* scores;  // [kMaxQueries][kChunk]
  float* sum;     // [kMaxQueries][v_pad]
  float* alpha;   // [kMaxQueries] factor of the sums so far
  float* max;     // [kMaxQueries]
  float* total;   // [kMaxQueries]
  int64_t k_pad;
  int64_t v_pad;
};

inline int64_t PadV(int64_t dim) {
  constexpr int64_t unit = kPvVectors * kLanes;
  return (dim + unit - 1) / unit * unit;
}

inline AttentionScratchView ViewScratch(const KvView& kv, std::byte* scratch) {
  AttentionScratchView s;
  s.k_pad = Padded(kv.k_dim);
  s.v_pad = PadV(kv.v_dim);
  s.q = reinterpret_cast<float*>(scratch);
  s.k = s.q + kMaxQueries * s.k_pad;
  s.v = s.k + kChunk * s.k_pad;
  s.scores = s.v + kChunk * s.v_pad;
  s.sum = s.scores + kMaxQueries * kChunk;
  s.alpha = s.sum + kMaxQueries * s.v_pad;
  s.max = s.alpha + kMaxQueries;
  s.total = s.max + kMaxQueries;
  return s;
}

size_t AttentionScratch(const void* args, int64_t /*max_rows*/) {
  const KvView& kv = static_cast<const AttentionArgs*>(args)->kv;
  const int64_t k_pad = Padded(kv.k_dim);
  const int64_t v_pad = PadV(kv.v_dim);
  const int64_t floats = (kMaxQueries + kChunk) * (k_pad + v_pad) + kMaxQueries * (kChunk + 3);
  return static_cast<size_t>(floats) * sizeof(float);
}

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
};
inline CacheArrays ArraysOf(const KvView& kv) {
  CacheArrays c = {KeysOf(kv, kv.pages), ValuesOf(kv, kv.pages), {}, {}, HasRecent(kv)};
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

// Keys of places [begin, end) to rows begin % kChunk of s.k, and their values to s.v where wanted.
// The block after each one, up to that of place `last`, is asked for meanwhile: blocks are too
// short for the hardware to see where a sequence goes on.
inline void LoadChunk(const CacheArrays& c, const KeySource& source, int64_t kv_head, int64_t begin,
                      int64_t end, int64_t last, bool with_values, const AttentionScratchView& s) {
  const int64_t block_size = c.keys.block_size;
  for (int64_t p = begin; p < end;) {
    const int64_t block = p / block_size;
    const int64_t at = p - block * block_size;
    const int64_t n = Least(end - p, block_size - at);
    const HeadRows now = HeadIn(c, source, block, kv_head);
    const HeadRows next = HeadIn(c, source, Least(block + 1, last / block_size), kv_head);
    float* k_rows = s.k + p % kChunk * s.k_pad;
    if (now.keys.row_bytes == 0) {
      if (at == 0) Prefetch(next.k, next.keys.head_bytes);
      LoadKiviKeys(now.k, at, at + n, now.keys.dim, k_rows, s.k_pad);
    } else {
      LoadRows(now.keys, now.k, next.k, at, n, k_rows, s.k_pad);
    }
    if (with_values) {
      LoadRows(now.values, now.v, next.v, at, n, s.v + p % kChunk * s.v_pad, s.v_pad);
    }
    p += n;
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
