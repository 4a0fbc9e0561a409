// Softmax attention over the paged cache, with the running maximum of Milakov and Gimelshein 2018
// (arXiv 1805.02867) and the blocking of Dao et al. 2022 (arXiv 2205.14135).
//
// Keys are taken in chunks of kChunk positions that start at multiples of kChunk. For one query
// head the result is a function of its own query and keys: the order within a chunk follows the
// absolute position, and chunks follow each other upwards. Query rows of one KV head (the heads of
// a group, and neighbouring tokens of a prompt) go through a chunk together, so that its keys and
// values are converted to float once.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kChunk =
    64;  // positions: keys and values of a chunk stay in the first-level cache
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

// The rows of a tile: `tokens` tokens of one sequence from `token`, each with query heads [head,
// head + heads).
struct QueryTile {
  int64_t token;
  int64_t tokens;
  int64_t head;
  int64_t heads;
  int64_t rows() const { return tokens * heads; }
};

inline int64_t FirstKey(const AttentionArgs& a, int64_t position) {
  return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
}

inline void DecodeKv(DType type, const uint8_t* src, float* dst, int64_t n) {
  if (type == DType::kF16) {
    DecodeRow<F16>(src, dst, n);
  } else if (type == DType::kBF16) {
    DecodeRow<Bf16>(src, dst, n);
  } else {
    DecodeRow<F32>(src, dst, n);
  }
}

// Keys and values of positions [begin, end) to rows begin % kChunk of s.k and s.v.
inline void LoadChunk(const KvView& kv, const int32_t* table, int64_t kv_head, int64_t begin,
                      int64_t end, const AttentionScratchView& s) {
  const int64_t k_bytes = KvElementBytes(kv.k_dtype) * kv.k_dim;
  const int64_t v_bytes = KvElementBytes(kv.v_dtype) * kv.v_dim;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t row = int64_t{table[p / kv.block_size]} * kv.n_heads + kv_head;
    const int64_t place = row * kv.block_size + p % kv.block_size;
    DecodeKv(kv.k_dtype, reinterpret_cast<const uint8_t*>(kv.k) + place * k_bytes,
             s.k + p % kChunk * s.k_pad, kv.k_dim);
    DecodeKv(kv.v_dtype, reinterpret_cast<const uint8_t*>(kv.v) + place * v_bytes,
             s.v + p % kChunk * s.v_pad, kv.v_dim);
  }
}

// scores[row][j] = q[row] . k[j] for j in [begin, end), both multiples of kColumns.
inline void ScoreChunk(const AttentionScratchView& s, int64_t rows, int64_t begin, int64_t end) {
  float out[kTileTokens][kColumns];
  for (int64_t r = 0; r < rows; r += kTileTokens) {
    const int64_t m = Least(kTileTokens, rows - r);
    for (int64_t j = begin; j < end; j += kColumns) {
      TileDotUpTo(m, s.k + j * s.k_pad, s.k_pad, s.q + r * s.k_pad, s.k_pad, s.k_pad, out);
      for (int64_t i = 0; i < m; ++i) {
        __builtin_memcpy(s.scores + (r + i) * kChunk + j, out[i], sizeof(out[i]));
      }
    }
  }
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
    F v = Load(scores + j) * Set(a.scale);
    if (a.softcap > 0) v = Set(a.softcap) * Tanh(v / Set(a.softcap));
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

inline void AddAllValues(const AttentionScratchView& s, int64_t rows, int64_t from, int64_t to) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) AddValues<4>(s, r, from, to);
  for (; r < rows; ++r) AddValues<1>(s, r, from, to);
}

inline void StartRows(const AttentionArgs& a, const QueryTile& t, const AttentionScratchView& s) {
  const int64_t k_dim = a.kv.k_dim;
  for (int64_t r = 0; r < t.rows(); ++r) {
    const int64_t head = (t.token + r / t.heads) * a.n_heads + t.head + r % t.heads;
    float* q = s.q + r * s.k_pad;
    __builtin_memcpy(q, a.q + head * k_dim, static_cast<size_t>(k_dim) * sizeof(float));
    for (int64_t i = k_dim; i < s.k_pad; ++i) q[i] = 0;
    for (int64_t i = 0; i < s.v_pad; ++i) s.sum[r * s.v_pad + i] = 0;
    s.max[r] = -__builtin_inff();
    s.total[r] = 0;
  }
}

inline void FinishRows(const AttentionArgs& a, const QueryTile& t, const AttentionScratchView& s) {
  const int64_t v_dim = a.kv.v_dim;
  for (int64_t r = 0; r < t.rows(); ++r) {
    const int64_t head = (t.token + r / t.heads) * a.n_heads + t.head + r % t.heads;
    const F total = Set(s.total[r]);
    ForVectors(
        0, v_dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
          StoreUpTo(a.y + head * v_dim + i, Load(s.sum + r * s.v_pad + i) / total, n);
        });
  }
}

// At most kMaxQueries rows, all of KV head `kv_head`.
inline void AttendTile(const AttentionArgs& a, const StepView& step, const QueryTile& t,
                       int64_t kv_head, const AttentionScratchView& s) {
  int64_t first = INT64_MAX;  // over all rows
  int64_t last = 0;
  for (int64_t i = 0; i < t.tokens; ++i) {
    const int64_t position = step.positions[t.token + i];
    first = Least(first, FirstKey(a, position));
    last = position > last ? position : last;
  }
  const int32_t* table =
      step.block_tables + int64_t{step.sequence[t.token]} * step.block_table_stride;
  StartRows(a, t, s);
  for (int64_t base = first / kChunk * kChunk; base <= last; base += kChunk) {
    const int64_t from = first > base ? first - base : 0;
    const int64_t to = Least(kChunk, last + 1 - base);
    LoadChunk(a.kv, table, kv_head, base + from, base + to, s);
    ScoreChunk(s, t.rows(), from / kColumns * kColumns, (to + kColumns - 1) / kColumns * kColumns);
    for (int64_t r = 0; r < t.rows(); ++r) {
      const int64_t position = step.positions[t.token + r / t.heads];
      const int64_t row_first = FirstKey(a, position) - base;
      WeighRow(a, s, r, row_first > from ? row_first : from, Least(to, position + 1 - base), from,
               to);
    }
    AddAllValues(s, t.rows(), from, to);
  }
  FinishRows(a, t, s);
}

// One token's query heads [begin, end) of all of the model's.
inline void AttendHeads(const AttentionArgs& a, const StepView& step, int64_t token, int64_t begin,
                        int64_t end, const AttentionScratchView& s) {
  const int64_t group = a.n_heads / a.kv.n_heads;
  for (int64_t head = begin; head < end;) {
    const int64_t kv_head = head / group;
    const int64_t heads = Least(Least(end, (kv_head + 1) * group) - head, kMaxQueries);
    AttendTile(a, step, {token, 1, head, heads}, kv_head, s);
    head += heads;
  }
}

void Attention(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  const AttentionScratchView s = ViewScratch(a.kv, thread.scratch);
  const int64_t group = a.n_heads / a.kv.n_heads;
  const int64_t kv_heads = a.kv.n_heads;
  // With few tokens, query heads are dealt out, even those of one group; else tiles of tokens, in
  // turn, since later tokens of a prompt see more keys.
  if (step.n_tokens * kv_heads < 4 * int64_t{thread.count} || group > kMaxQueries) {
    const Share share = ShareOf(step.n_tokens * int64_t{a.n_heads}, 1, thread);
    for (int64_t i = share.begin; i < share.end;) {
      const int64_t token = i / a.n_heads;
      const int64_t end = Least(share.end, (token + 1) * a.n_heads);
      AttendHeads(a, step, token, i - token * a.n_heads, end - token * a.n_heads, s);
      i = end;
    }
    return;
  }
  const int64_t tile_tokens = kMaxQueries / group;
  int64_t item = 0;
  for (int64_t token = 0; token < step.n_tokens;) {
    int64_t end = token + 1;
    while (end < step.n_tokens && end - token < tile_tokens &&
           step.sequence[end] == step.sequence[token]) {
      ++end;
    }
    for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head, ++item) {
      if (item % thread.count != thread.index) continue;
      AttendTile(a, step, {token, end - token, kv_head * group, group}, kv_head, s);
    }
    token = end;
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
