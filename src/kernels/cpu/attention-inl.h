// Softmax attention over the paged cache, with the running maximum of Milakov and Gimelshein 2018
// (arXiv 1805.02867) and the blocking of Dao et al. 2022 (arXiv 2205.14135).
//
// Keys are taken in chunks of kChunk positions that start at multiples of kChunk. For one query
// head the result is a function of its own query and keys: the order within a chunk follows the
// place, and chunks follow each other upwards. Query rows of one KV head (the heads of a group,
// neighbouring tokens of a prompt, and tokens of sequences whose block tables agree for the chunk)
// go through a chunk together, so that its keys and values are read and converted to float once
// (cascade attention: Juravsky et al. 2024, arXiv 2402.05099).
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/attention_keys-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// scores[row][j] = q[row] . k[j] for rows [row, end_row) and the keys `part`.
inline void ScoreChunk(const AttentionScratchView& s, int64_t row, int64_t end_row, Places part) {
  const int64_t begin = part.from / kColumns * kColumns;
  const int64_t end = (part.to + kColumns - 1) / kColumns * kColumns;
  float out[kTileTokens][kColumns];
  for (int64_t r = row; r < end_row;) {
    // Tiles of about equal size: a last one of a single row would wait for its own sums.
    const int64_t tiles = (end_row - r + kTileTokens - 1) / kTileTokens;
    const int64_t m = (end_row - r + tiles - 1) / tiles;
    for (int64_t j = begin; j < end; j += kColumns) {
      TileDotUpTo(m, s.k + j * s.k_pad, s.k_pad, s.q + r * s.k_pad, s.k_pad, s.k_pad, out);
      for (int64_t i = 0; i < m; ++i) {
        __builtin_memcpy(s.scores + (r + i) * kChunk + j, out[i], sizeof(out[i]));
      }
    }
    r += m;
  }
}

inline F Scaled(const AttentionArgs& a, F score) {
  const F v = score * Set(a.scale);
  return a.softcap > 0 ? Set(a.softcap) * Tanh(v / Set(a.softcap)) : v;
}

// Turns the scores of one row into weights exp(score - max), 0 outside of [begin, end), and updates
// its running maximum and total. `from` and `to`: the range that the sum over values will read.
inline void WeighRow(const AttentionArgs& a, const AttentionScratchView& s, int64_t r,
                     int64_t begin, int64_t end, int64_t from, int64_t to) {
  float* scores = s.scores + r * kChunk;
  if (begin >= end) {  // nothing visible here: the sums stay as they are
    s.alpha[r] = 1.0f;
    for (int64_t j = from; j < to; ++j) scores[j] = 0;
    return;
  }
  const F lowest = Set(-__builtin_inff());
  F max = lowest;
  for (int64_t j = 0; j < kChunk; j += kLanes) {
    if (j + kLanes <= begin || j >= end) continue;
    F v = Scaled(a, Load(scores + j));
    const int64_t first = begin > j ? begin - j : 0;
    v = KeepLanes(v, first, Least(end - j, kLanes), lowest);
    Store(scores + j, v);
    max = Max(max, v);
  }
  const float chunk_max = MaxLane(max);
  const float new_max = chunk_max > s.max[r] ? chunk_max : s.max[r];
  F total = Zero();
  for (int64_t j = 0; j < kChunk; j += kLanes) {
    if (j + kLanes <= begin || j >= end) {
      Store(scores + j, Zero());
      continue;
    }
    const F weight = Exp(Load(scores + j) - Set(new_max));
    Store(scores + j, weight);
    total = total + weight;
  }
  float lane[kLanes];
  Store(lane, Exp(Set(s.max[r] - new_max)));
  s.alpha[r] = lane[0];
  s.total[r] = s.total[r] * s.alpha[r] + SumLanes(total);
  s.max[r] = new_max;
}

// sum[r..r+R) = sum * alpha + weights . v over keys [from, to), kPvVectors vectors of the value at
// a time.
template <int R>
void AddValues(const AttentionScratchView& s, int64_t r, int64_t from, int64_t to) {
  for (int64_t d = 0; d < s.v_pad; d += kPvVectors * kLanes) {
    F acc[R][kPvVectors];
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) {
      const F alpha = Set(s.alpha[r + i]);
#pragma GCC unroll 4
      for (int n = 0; n < kPvVectors; ++n) {
        acc[i][n] = Load(s.sum + (r + i) * s.v_pad + d + n * kLanes) * alpha;
      }
    }
    for (int64_t j = from; j < to; ++j) {
      F v[kPvVectors];
#pragma GCC unroll 4
      for (int n = 0; n < kPvVectors; ++n) v[n] = Load(s.v + j * s.v_pad + d + n * kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < R; ++i) {
        const F weight = Set(s.scores[(r + i) * kChunk + j]);
#pragma GCC unroll 4
        for (int n = 0; n < kPvVectors; ++n) acc[i][n] = Fma(weight, v[n], acc[i][n]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < kPvVectors; ++n) {
        Store(s.sum + (r + i) * s.v_pad + d + n * kLanes, acc[i][n]);
      }
    }
  }
}

inline void AddAllValues(const AttentionScratchView& s, int64_t row, int64_t end_row, Places part) {
  for (int64_t r = row; r < end_row;) {
    switch (end_row - r) {
      case 1:
        AddValues<1>(s, r, part.from, part.to);
        r += 1;
        break;
      case 2:
      case 5:  // and 3 more: a single row would wait for its own sums
        AddValues<2>(s, r, part.from, part.to);
        r += 2;
        break;
      case 3:
      case 6:
        AddValues<3>(s, r, part.from, part.to);
        r += 3;
        break;
      default:
        AddValues<4>(s, r, part.from, part.to);
        r += 4;
        break;
    }
  }
}

inline int64_t TokenOf(const QueryTile& t, int64_t row) {
  return t.token + row / t.heads;
}
// Of all query heads of the step.
inline int64_t HeadIndex(const AttentionArgs& a, const QueryTile& t, int64_t row) {
  return TokenOf(t, row) * a.n_heads + t.head + row % t.heads;
}

inline void StartRows(const AttentionArgs& a, const QueryTile& t, const AttentionScratchView& s) {
  const int64_t k_dim = a.kv.k_dim;
  for (int64_t r = 0; r < RowsOf(t); ++r) {
    float* q = s.q + r * s.k_pad;
    __builtin_memcpy(q, a.q + HeadIndex(a, t, r) * k_dim,
                     static_cast<size_t>(k_dim) * sizeof(float));
    for (int64_t i = k_dim; i < s.k_pad; ++i) q[i] = 0;
    for (int64_t i = 0; i < s.v_pad; ++i) s.sum[r * s.v_pad + i] = 0;
    s.max[r] = -__builtin_inff();
    s.total[r] = 0;
  }
}

inline void FinishRows(const AttentionArgs& a, const QueryTile& t, const AttentionScratchView& s) {
  const int64_t v_dim = a.kv.v_dim;
  for (int64_t r = 0; r < RowsOf(t); ++r) {
    float* y = a.y + HeadIndex(a, t, r) * v_dim;
    const F total = Set(s.total[r]);
    ForVectors(
        0, v_dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
          StoreUpTo(y + i, Load(s.sum + r * s.v_pad + i) / total, n);
        });
  }
}

// What a row that sees places [seen.from, seen.to) sees of a chunk of which its span sees `part`;
// from >= to: nothing.
inline Places RowPart(Places seen, int64_t base, Places part) {
  const int64_t from = seen.from - base;
  return {from > part.from ? from : part.from, Least(part.to, seen.to - base)};
}

inline void AttendTile(const AttentionArgs& a, const CacheArrays& c, const QueryTile& t,
                       const TileKeys& keys, const AttentionScratchView& s) {
  const Span* spans = keys.spans;
  int64_t first = INT64_MAX;  // over all spans
  int64_t last = 0;
  for (int64_t i = 0; i < keys.n; ++i) {
    first = Least(first, spans[i].first);
    last = spans[i].last > last ? spans[i].last : last;
  }
  StartRows(a, t, s);
  for (int64_t base = first / kChunk * kChunk; base <= last; base += kChunk) {
    for (int64_t i = 0; i < keys.n;) {
      const Places part = PartOf(spans[i], base);
      int64_t next = i + 1;
      if (part.from < part.to) {
        while (next < keys.n) {  // who reads the same keys of this chunk?
          const Places other = PartOf(spans[next], base);
          if (other.from != part.from || other.to != part.to ||
              !SameKeys(c, spans[i].source, spans[next].source, base + part.from, base + part.to)) {
            break;
          }
          ++next;
        }
        const int64_t row = spans[i].row;
        const int64_t end = spans[next - 1].end;
        LoadChunk(c, spans[i].source, t.kv_head, base + part.from, base + part.to, spans[i].last,
                  true, s);
        ScoreChunk(s, row, end, part);
        for (int64_t r = row; r < end; ++r) {
          const Places seen = RowPart(keys.seen[r], base, part);
          WeighRow(a, s, r, seen.from, seen.to, part.from, part.to);
        }
        AddAllValues(s, row, end, part);
      }
      i = next;
    }
  }
  FinishRows(a, t, s);
}

inline void Attend(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                   const QueryTile& t, const AttentionScratchView& s) {
  TileKeys keys;
  FindKeys(a, step, t, &keys);
  AttendTile(a, c, t, keys, s);
}

// After AttendTile of a tile of one sequence: a second pass over the keys adds the final weights of
// each row to the sums of KeyScores, row by row.
inline void SumWeights(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                       const QueryTile& t, const TileKeys& keys, const AttentionScratchView& s) {
  const KeyScores& wanted = step.scores[step.sequence[t.token]];
  float* sums = wanted.sums + a.kv.layer * wanted.layer_stride + t.kv_head * wanted.capacity;
  for (int64_t i = 0; i < keys.n; ++i) {
    const Span& span = keys.spans[i];
    int64_t row = span.row;
    while (row < span.end && step.positions[TokenOf(t, row)] < wanted.first_position) ++row;
    if (row == span.end) continue;
    for (int64_t base = span.first / kChunk * kChunk; base <= span.last; base += kChunk) {
      const Places part = PartOf(span, base);
      LoadChunk(c, span.source, t.kv_head, base + part.from, base + part.to, span.last, false, s);
      ScoreChunk(s, row, span.end, part);
      for (int64_t r = row; r < span.end; ++r) {
        const Places seen = RowPart(keys.seen[r], base, part);
        const F max = Set(s.max[r]);
        const F total = Set(s.total[r]);
        ForVectors(
            seen.from, seen.to, [&](int64_t j, int64_t count) __attribute__((always_inline)) {
              const F weight = Exp(Scaled(a, LoadUpTo(s.scores + r * kChunk + j, count)) - max);
              float* sum = sums + base + j;
              StoreUpTo(sum, LoadUpTo(sum, count) + weight / total, count);
            });
      }
    }
  }
}

// All query heads of one KV head for the tokens [begin, end) of a sequence whose weights are
// summed: in order, by one thread.
inline void AttendSummed(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                         int64_t begin, int64_t end, int64_t kv_head,
                         const AttentionScratchView& s) {
  const int64_t group = a.n_heads / a.kv.n_heads;
  const int64_t tile_tokens = group < kMaxQueries ? kMaxQueries / group : 1;
  for (int64_t token = begin; token < end; token += tile_tokens) {
    for (int64_t head = 0; head < group; head += kMaxQueries) {
      const QueryTile tile = {token, Least(tile_tokens, end - token), kv_head * group + head,
                              Least(kMaxQueries, group - head), kv_head};
      TileKeys keys;
      FindKeys(a, step, tile, &keys);
      AttendTile(a, c, tile, keys, s);
      SumWeights(a, step, c, tile, keys, s);
    }
  }
}

// One token's query heads [begin, end) of all of the model's.
inline void AttendHeads(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                        int64_t token, int64_t begin, int64_t end, const AttentionScratchView& s) {
  const int64_t group = a.n_heads / a.kv.n_heads;
  for (int64_t head = begin; head < end;) {
    const int64_t kv_head = head / group;
    const int64_t heads = Least(Least(end, (kv_head + 1) * group) - head, kMaxQueries);
    Attend(a, step, c, {token, 1, head, heads, kv_head}, s);
    head += heads;
  }
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
    if (step.sequence[end] == step.sequence[end - 1]) continue;
    if (end - token >= most_shared || WantsScores(a, step, step.sequence[end]) ||
        !SharePrefix(a, step, c, end - 1, end)) {
      break;
    }
    most = Least(most, most_shared);
  }
  return end;
}

void Attention(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  const AttentionScratchView s = ViewScratch(a.kv, thread.scratch);
  const CacheArrays c = ArraysOf(a.kv);
  const int64_t group = a.n_heads / a.kv.n_heads;
  const int64_t kv_heads = a.kv.n_heads;
  int64_t item = 0;
  if (step.scores != nullptr) {
    for (int64_t token = 0; token < step.n_tokens;) {
      const int64_t end = SequenceEnd(step, token);
      if (WantsScores(a, step, step.sequence[token])) {
        for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head, ++item) {
          if (item % thread.count == thread.index) AttendSummed(a, step, c, token, end, kv_head, s);
        }
      }
      token = end;
    }
  }
  // With few tokens, query heads are dealt out, even those of one group; else tiles of tokens, in
  // turn, since later tokens of a prompt see more keys.
  if (step.n_tokens * kv_heads < 4 * int64_t{thread.count} || group > kMaxQueries) {
    const Share share = ShareOf(step.n_tokens * int64_t{a.n_heads}, 1, thread);
    for (int64_t i = share.begin; i < share.end;) {
      const int64_t token = i / a.n_heads;
      const int64_t end = Least(share.end, (token + 1) * a.n_heads);
      if (!WantsScores(a, step, step.sequence[token])) {
        AttendHeads(a, step, c, token, i - token * a.n_heads, end - token * a.n_heads, s);
      }
      i = end;
    }
    return;
  }
  const int64_t tile_tokens = kMaxQueries / group;
  // Tiles over several sequences are fewer: two for each thread must be left.
  const int64_t shared_tokens = step.n_tokens * kv_heads / (2 * int64_t{thread.count});
  for (int64_t token = 0; token < step.n_tokens;) {
    if (WantsScores(a, step, step.sequence[token])) {
      token = SequenceEnd(step, token);
      continue;
    }
    const int64_t end = TileEnd(a, step, c, token, tile_tokens, shared_tokens);
    for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head, ++item) {
      if (item % thread.count != thread.index) continue;
      Attend(a, step, c, {token, end - token, kv_head * group, group, kv_head}, s);
    }
    token = end;
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
