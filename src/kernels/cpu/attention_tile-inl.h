// One query tile of attention-inl.h through its keys: AttendTile, over the arithmetic of ExactMath
// or PairsMath.
//
// Softmax with a running reference (Milakov and Gimelshein 2018, arXiv 1805.02867), blocked as by
// Dao et al. 2022 (arXiv 2205.14135). The reference follows the largest score only once that is far
// ahead, so that sums are rarely rescaled (Dao 2025, FlashAttention-4's rule).
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_exact-inl.h"
#include "kernels/cpu/attention_pairs-inl.h"
#include "kernels/cpu/attention_scratch-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr float kAhead = 8.0f;  // weights reach 2^kAhead
constexpr float kLowest = -__builtin_inff();

inline float Exp2Of(float x) {
  float lanes[kLanes];
  Store(lanes, Exp2(Set(x)));
  return lanes[0];
}

inline int64_t TokenOf(const QueryTile& t, int64_t row) {
  return t.token + row / t.heads;
}
// Of all query heads of the step.
inline int64_t HeadIndex(const AttentionArgs& a, const QueryTile& t, int64_t row) {
  return TokenOf(t, row) * a.n_heads + t.head + row % t.heads;
}

// Scores are exponents of 2, so queries carry the factor log2(e); with a cap they carry 1 / cap,
// and the cap itself the factor.
inline float QueryFactor(const AttentionArgs& a) {
  return a.softcap > 0 ? a.scale / a.softcap : a.scale * kLog2E;
}
inline F Capped(const AttentionArgs& a, F score) {
  return a.softcap > 0 ? Set(a.softcap * kLog2E) * Tanh(score) : score;
}

// Adds ALiBi to the scores of neighbouring places, the first of which lies `distance` behind the
// row's own place.
inline F Biased(const AttentionArgs& a, const AttentionScratchView& s, int64_t row, F score,
                int64_t distance) {
  static constexpr float kLaneIndex[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  if (a.slopes == nullptr) return score;
  return Fma(Set(s.slope[row]), Load(kLaneIndex) - Set(static_cast<float>(distance)), score);
}

// What a row that sees places [seen.from, seen.to) sees of a chunk of which its span sees `part`;
// from >= to: nothing.
inline Places RowPart(Places seen, int64_t base, Places part) {
  const int64_t from = seen.from - base;
  return {from > part.from ? from : part.from, Least(part.to, seen.to - base)};
}

inline void StartPiece(const AttentionScratchView& s, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) s.max[r] = kLowest;
  for (int64_t i = 0; i < rows * kLanes; ++i) s.total[i] = 0;
  for (int64_t i = 0; i < rows * s.v_pad; ++i) s.sum[i] = 0;
}

// Makes `max` the reference of a row. What was summed so far counts for less.
[[gnu::noinline]] void RaiseMax(const AttentionScratchView& s, int64_t row, float max) {
  const F alpha = Exp2(Set(s.max[row] - max));
  s.max[row] = max;
  float* total = s.total + row * kLanes;
  Store(total, Load(total) * alpha);
  float* sum = s.sum + row * s.v_pad;
  for (int64_t d = 0; d < s.v_pad; d += kLanes) Store(sum + d, Load(sum + d) * alpha);
}

// Turns row i of s.weights from scores into weights, 0 outside of `seen`, of tile row `row`, whose
// own place lies `distance` places after the chunk's first.
template <typename Math>
inline void WeighRow(const AttentionArgs& a, const AttentionScratchView& s, int i, int64_t row,
                     Places seen, int64_t distance) {
  constexpr int kVectors = kChunk / kLanes;
  F v[kVectors];
  if (seen.from >= seen.to) {
    for (int n = 0; n < kVectors; ++n) v[n] = Zero();
    return Math::PutWeights(v, s, i);
  }
  const float* scores = s.weights + i * kChunk;
#pragma GCC unroll 16
  for (int n = 0; n < kVectors; ++n) v[n] = Load(scores + n * kLanes);
  if (a.softcap > 0) {
    for (int n = 0; n < kVectors; ++n) v[n] = Capped(a, v[n]);
  }
  if (a.slopes != nullptr) {
    for (int n = 0; n < kVectors; ++n) v[n] = Biased(a, s, row, v[n], distance - n * kLanes);
  }
  if (seen.from > 0 || seen.to < kChunk) {
    for (int n = 0; n < kVectors; ++n) {
      const int64_t begin = Least(seen.from - n * kLanes, kLanes);
      const int64_t end = Least(seen.to - n * kLanes, kLanes);
      v[n] = KeepLanes(v[n], begin < 0 ? 0 : begin, end < 0 ? 0 : end, Set(kLowest));
    }
  }
  F top = v[0];
#pragma GCC unroll 16
  for (int n = 1; n < kVectors; ++n) top = Max(top, v[n]);
  if (AnyGreater(top, Set(s.max[row] + kAhead))) RaiseMax(s, row, MaxLane(top));
  const F max = Set(s.max[row]);
  F total = Load(s.total + row * kLanes);
#pragma GCC unroll 16
  for (int n = 0; n < kVectors; ++n) {
    v[n] = Math::Power(v[n] - max);
    total = total + v[n];
  }
  Store(s.total + row * kLanes, total);
  Math::PutWeights(v, s, i);
}

// Rows [row, row + R) of a tile through a loaded chunk. Rounds of its loops ask for kAhead lines.
template <typename Math, int R, int kAhead>
void AttendRows(const AttentionArgs& a, const AttentionScratchView& s, int64_t row, int64_t base,
                Places part, const Places* seen, Ahead* ahead) {
  Places rows[R];
  Places all = {kChunk, 0};
  for (int i = 0; i < R; ++i) {
    rows[i] = RowPart(seen[row + i], base, part);
    if (rows[i].from >= rows[i].to) continue;
    all.from = Least(all.from, rows[i].from);
    all.to = rows[i].to > all.to ? rows[i].to : all.to;
  }
  if (all.from >= all.to) return;
  const uint8_t* const* lines = ahead->Take(kAhead * Math::ScoreRounds(s, all));
  if (kAhead > 0 && lines != nullptr) {
    Math::template Score<R, kAhead>(s, row, all, lines);
  } else {
    Math::template Score<R, 0>(s, row, all, nullptr);
  }
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i) {
    WeighRow<Math>(a, s, i, row + i, rows[i], seen[row + i].to - 1 - base);
  }
  int64_t d = 0;
  constexpr int64_t kWidth = kTileVectors * kLanes;
  for (; d + kWidth <= s.v_pad; d += kWidth) {
    lines = ahead->Take(kAhead * Math::ValueRounds(all));
    if (kAhead > 0 && lines != nullptr) {
      Math::template AddVectors<R, kTileVectors, kAhead>(s, row, all, d, lines);
    } else {
      Math::template AddVectors<R, kTileVectors, 0>(s, row, all, d, nullptr);
    }
  }
  switch ((s.v_pad - d) / kLanes) {
    case 1:
      return Math::template AddVectors<R, 1, 0>(s, row, all, d, nullptr);
    case 2:
      return Math::template AddVectors<R, 2, 0>(s, row, all, d, nullptr);
    case 3:
      return Math::template AddVectors<R, 3, 0>(s, row, all, d, nullptr);
    default:
      return;
  }
}

// Calls body(row, height) for register tiles of about equal height that cover [begin, end): a last
// one of a single row would wait for its own sums.
template <typename Body>
[[gnu::always_inline]] inline void ForTiles(int64_t begin, int64_t end, Body&& body) {
  for (int64_t r = begin; r < end;) {
    const int64_t tiles = (end - r + kQueryRows - 1) / kQueryRows;
    const int64_t height = (end - r + tiles - 1) / tiles;
    body(r, height);
    r += height;
  }
}

template <typename Math, int kAhead>
void AttendUpTo(int64_t height, const AttentionArgs& a, const AttentionScratchView& s, int64_t row,
                int64_t base, Places part, const Places* seen, Ahead* ahead) {
  switch (height) {
    case 1:
      return AttendRows<Math, 1, kAhead>(a, s, row, base, part, seen, ahead);
    case 2:
      return AttendRows<Math, 2, kAhead>(a, s, row, base, part, seen, ahead);
    case 3:
      if constexpr (kQueryRows >= 3) {
        return AttendRows<Math, 3, kAhead>(a, s, row, base, part, seen, ahead);
      }
      return;
    case 4:
      if constexpr (kQueryRows >= 4) {
        return AttendRows<Math, 4, kAhead>(a, s, row, base, part, seen, ahead);
      }
      return;
    case 5:
      if constexpr (kQueryRows >= 5) {
        return AttendRows<Math, 5, kAhead>(a, s, row, base, part, seen, ahead);
      }
      return;
    default:
      if constexpr (kQueryRows >= 6) {
        return AttendRows<Math, 6, kAhead>(a, s, row, base, part, seen, ahead);
      }
      return;
  }
}

// Brings keys, and values if wanted, of base + part to the scratch, and finds the lines of the next
// chunk, up to place `last`.
template <typename Math>
void LoadChunk(const CacheArrays& c, const KeySource& source, int64_t kv_head, int64_t base,
               Places part, int64_t last, bool with_values, const AttentionScratchView& s,
               Ahead* ahead) {
  ChunkRows keys;
  ChunkRows values;
  FindRows(c, source, kv_head, base, part, s, &keys, &values);
  // Whole vectors of places are loaded; what lies beside the part is masked later.
  for (int64_t i = part.from / kLanes * kLanes; i < part.from; ++i) {
    keys.row[i] = keys.row[part.from];
  }
  for (int64_t i = part.to; i % kLanes != 0; ++i) keys.row[i] = keys.row[part.from];
  const int64_t next = base + kChunk;
  if (next <= last) AddRows(c, source, kv_head, next, Least(last + 1, next + kChunk), ahead);
  Math::PutAllKeys(keys, part, s);
  if (with_values) Math::PutAllValues(values, part, s);
}

// A row's softmax over some places: weights relative to 2^max, their total, and weights . values.
struct Partial {
  float* max;
  float* total;
  float* sum;  // [v_pad]
};

// Adds `part`, which comes after what `all` has. Nothing seen: max -inf and total 0.
inline void Merge(const Partial& all, const Partial& part, int64_t v_pad) {
  if (*part.max == kLowest && *part.total == 0) return;
  if (*all.max == kLowest && *all.total == 0) {
    *all.max = *part.max;
    *all.total = *part.total;
    for (int64_t d = 0; d < v_pad; ++d) all.sum[d] = part.sum[d];
    return;
  }
  const float max = *part.max > *all.max ? *part.max : *all.max;
  const float old_factor = Exp2Of(*all.max - max);
  const float factor = Exp2Of(*part.max - max);
  *all.max = max;
  *all.total = *all.total * old_factor + *part.total * factor;
  for (int64_t d = 0; d < v_pad; d += kLanes) {
    const F old = Load(all.sum + d) * Set(old_factor);
    Store(all.sum + d, Fma(Load(part.sum + d), Set(factor), old));
  }
}

inline Partial AllOf(const AttentionScratchView& s, int64_t row) {
  return {s.all_max + row, s.all_total + row, s.all_sum + row * s.v_pad};
}
inline void StartAll(const Partial& all) {
  *all.max = kLowest;
  *all.total = 0;
}
// What the rows of the piece have come to is merged into AllOf, or written to `out` if that is not
// nullptr: [rows][SlotFloats].
inline int64_t SlotFloats(int64_t v_pad) {
  return 16 + v_pad;
}
inline Partial SlotOf(float* slots, int64_t v_pad, int64_t row) {
  float* slot = slots + row * SlotFloats(v_pad);
  return {slot, slot + 1, slot + 16};
}
inline void EndPiece(const AttentionScratchView& s, int64_t rows, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    float total = SumLanes(Load(s.total + r * kLanes));
    const Partial piece = {s.max + r, &total, s.sum + r * s.v_pad};
    const Partial to = out != nullptr ? SlotOf(out, s.v_pad, r) : AllOf(s, r);
    if (out != nullptr) StartAll(to);
    Merge(to, piece, s.v_pad);
  }
}

// The sum of a row's weights, its head's sink included, relative to 2^max.
inline float TotalOf(const AttentionArgs& a, int64_t head, float max, float total) {
  if (a.sinks == nullptr) return total;
  // Far ahead of all scores it takes all of the weight; 2^120 still leaves room in a float.
  constexpr float kMostAhead = 120.0f;
  const float ahead = a.sinks[head % a.n_heads] * kLog2E - max;
  return total + Exp2Of(ahead < kMostAhead ? ahead : kMostAhead);
}

inline void PutOutput(const AttentionArgs& a, int64_t head, const Partial& all) {
  float* y = a.y + head * a.kv.v_dim;
  const F total = Set(TotalOf(a, head, *all.max, *all.total));
  ForVectors(
      0, a.kv.v_dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(y + i, LoadUpTo(all.sum + i, n) / total, n);
      });
}

// The places that any row of a tile sees: [first, last].
inline Places AllPlaces(const TileKeys& keys) {
  Places all = {INT64_MAX, 0};
  for (int64_t i = 0; i < keys.n; ++i) {
    all.from = Least(all.from, keys.spans[i].first);
    all.to = keys.spans[i].last + 1 > all.to ? keys.spans[i].last + 1 : all.to;
  }
  return all;
}

// All spans of a tile through the chunk at `base`: those that read the same pages together (cascade
// attention: Juravsky et al. 2024, arXiv 2402.05099).
template <typename Math>
void AttendChunk(const AttentionArgs& a, const CacheArrays& c, const QueryTile& t,
                 const TileKeys& keys, int64_t base, const AttentionScratchView& s) {
  const Span* spans = keys.spans;
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
      Ahead ahead;
      LoadChunk<Math>(c, spans[i].source, t.kv_head, base, part, spans[i].last, true, s, &ahead);
      const int64_t first = spans[i].row;
      const int64_t end = spans[next - 1].end;
      ForTiles(first, end, [&](int64_t row, int64_t height) {
        if (end - first <= kQueryRows) {
          AttendUpTo<Math, 2>(height, a, s, row, base, part, keys.seen, &ahead);
        } else {
          AttendUpTo<Math, 1>(height, a, s, row, base, part, keys.seen, &ahead);
        }
      });
      ahead.AskForRest();
    }
    i = next;
  }
}

template <typename Math>
void PutQueries(const AttentionArgs& a, const QueryTile& t, const AttentionScratchView& s) {
  const int64_t dim = a.kv.k_dim;
  for (int64_t r = 0; r < RowsOf(t); ++r) {
    Math::PutQuery(a.q + HeadIndex(a, t, r) * dim, QueryFactor(a), dim, s, r);
    if (a.slopes != nullptr) s.slope[r] = a.slopes[t.head + r % t.heads] * kLog2E;
  }
}

// Pieces [begin, end) of the tile (a piece: kPiece places), counted from place 0: merged into
// AllOf, or each to its own place of `out`: [end - begin][rows] slots.
template <typename Math>
void AttendPieces(const AttentionArgs& a, const CacheArrays& c, const QueryTile& t,
                  const TileKeys& keys, int64_t begin, int64_t end, const AttentionScratchView& s,
                  float* out) {
  const int64_t rows = RowsOf(t);
  const Places all = AllPlaces(keys);
  PutQueries<Math>(a, t, s);
  for (int64_t r = 0; r < rows; ++r) StartAll(AllOf(s, r));
  for (int64_t piece = begin; piece < end; ++piece) {
    StartPiece(s, rows);
    const int64_t first = piece * kPiece > all.from ? piece * kPiece : all.from / kChunk * kChunk;
    const int64_t last = Least((piece + 1) * kPiece, all.to);
    for (int64_t base = first; base < last; base += kChunk) {
      AttendChunk<Math>(a, c, t, keys, base, s);
    }
    EndPiece(s, rows, out);
    if (out != nullptr) out += rows * SlotFloats(s.v_pad);
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
