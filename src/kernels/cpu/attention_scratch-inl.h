// A thread's scratch of attention-inl.h, and the rows of keys and values that a chunk reads: in the
// cache itself where its type allows, else decoded.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_keys-inl.h"
#include "kernels/cpu/kv_rows-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int kTileVectors = 4;  // columns of a register tile: keys, or dims of the value

struct AttentionScratchView {
  float* q;         // [rows][k_pad], scaled; as pairs of bfloat16 half as long
  float* k;         // [k_pad][kChunk]: keys in lanes; as pairs [k_pad / 2][kChunk]
  float* v;         // [kChunk][v_pad]; as pairs of places [kChunk / 2][v_pad]
  float* k_rows;    // [kChunk][k_pad] decoded, if the type needs it
  float* v_rows;    // [kChunk][v_pad]
  float* weights;   // [kQueryRows][kChunk]: scores, then weights
  uint32_t* pairs;  // [kQueryRows][kChunk / 2]: weights of places 2i and 2i + 1 as bfloat16
  float* slope;     // [rows] of ALiBi, per place
  // Of the piece: by row, weights are 2^(score - max).
  float* max;    // [rows]
  float* total;  // [rows][kLanes], to be summed
  float* sum;    // [rows][v_pad] weights . values
  // Of the pieces before it.
  float* all_max;    // [rows]
  float* all_total;  // [rows]
  float* all_sum;    // [rows][v_pad]
  int64_t k_dim;
  int64_t k_pad;  // multiples of kLanes
  int64_t v_pad;
};

// Rows of a tile: enough that loading keys and values costs little beside using them, as long as
// queries and sums fit the second-level cache.
inline int64_t RowsFor(const KvView& kv) {
  constexpr int64_t kFloats = 32768;
  const int64_t rows = kFloats / (kv.k_dim > kv.v_dim ? kv.k_dim : kv.v_dim);
  return rows > kMaxQueries ? kMaxQueries : rows < 16 ? 16 : rows;
}

// Lays the arrays out from `scratch` on, if it is not nullptr; returns how many floats they take.
inline int64_t LayOutRows(const KvView& kv, int64_t rows, float* scratch, AttentionScratchView* s) {
  s->k_dim = kv.k_dim;
  s->k_pad = Padded(kv.k_dim);
  s->v_pad = Padded(kv.v_dim);
  int64_t used = 0;
  const auto take = [&used, scratch](int64_t floats) {
    float* begin = scratch == nullptr ? nullptr : scratch + used;
    used += (floats + 15) / 16 * 16;
    return begin;
  };
  s->k = take(s->k_pad * kChunk);
  s->v = take(kChunk * s->v_pad);
  s->weights = take(kQueryRows * kChunk);
  s->pairs = reinterpret_cast<uint32_t*>(take(kQueryRows * kChunk / 2));
  s->q = take(rows * s->k_pad);
  s->slope = take(rows);
  s->max = take(rows);
  s->total = take(rows * kLanes);
  s->sum = take(rows * s->v_pad);
  s->all_max = take(rows);
  s->all_total = take(rows);
  s->all_sum = take(rows * s->v_pad);
  s->k_rows = take(kChunk * s->k_pad);
  s->v_rows = take(kChunk * s->v_pad);
  return used;
}
inline int64_t LayOut(const KvView& kv, float* scratch, AttentionScratchView* s) {
  return LayOutRows(kv, RowsFor(kv), scratch, s);
}
inline AttentionScratchView ViewScratch(const KvView& kv, std::byte* scratch) {
  AttentionScratchView s;
  LayOut(kv, reinterpret_cast<float*>(scratch), &s);
  return s;
}

size_t AttentionScratch(const void* args, int64_t /*max_rows*/) {
  AttentionScratchView s;
  const int64_t floats = LayOut(static_cast<const AttentionArgs*>(args)->kv, nullptr, &s);
  return static_cast<size_t>(floats) * sizeof(float);
}

// Where each place of a chunk has its vector: `elements` of a plain type.
struct ChunkRows {
  const uint8_t* row[kChunk];  // those outside of the wanted part: any row, or nullptr
  KvType type;                 // kF32, kF16 or kBF16
};

// Whether vectors can be loaded from the cache as they are.
inline bool IsPlain(const KvArray& a) {
  return a.dim % kLanes == 0 &&
         (a.type == KvType::kF32 || a.type == KvType::kF16 || a.type == KvType::kBF16);
}

// Cache lines that the next chunk reads. Blocks are too short for the hardware to see where a
// sequence goes on, and asking for all lines at once would stop everything else: loops ask for a
// few in each round.
struct Ahead {
  static constexpr int64_t kMost = 1024;
  const uint8_t* line[kMost];
  int64_t n = 0;
  int64_t next = 0;

  void Add(const uint8_t* p, int64_t bytes) {
    const int64_t count = Least((bytes + 63) / 64, kMost - n);
    for (int64_t i = 0; i < count; ++i) line[n + i] = p + 64 * i;
    n += count;
  }
  // `count` lines for a loop to ask for, or nullptr if fewer are left.
  const uint8_t* const* Take(int64_t count) {
    if (n - next < count) return nullptr;
    next += count;
    return line + next - count;
  }
  void AskForRest() {
    for (; next < n; ++next) __builtin_prefetch(line[next], 0, 2);
  }
};

template <int kCount>
[[gnu::always_inline]] inline void AskFor(const uint8_t* const** lines) {
#pragma GCC unroll 2
  for (int i = 0; i < kCount; ++i) __builtin_prefetch((*lines)[i], 0, 2);
  *lines += kCount;
}

// Adds the rows of places [begin, end).
inline void AddRows(const CacheArrays& c, const KeySource& source, int64_t kv_head, int64_t begin,
                    int64_t end, Ahead* ahead) {
  const int64_t block_size = c.keys.block_size;
  for (int64_t p = begin; p < end;) {
    const int64_t block = p / block_size;
    const int64_t at = p - block * block_size;
    const int64_t n = Least(end - p, block_size - at);
    const HeadRows rows = HeadIn(c, source, block, kv_head);
    if (rows.keys.row_bytes == 0) {
      ahead->Add(rows.k, rows.keys.head_bytes);
    } else {
      ahead->Add(rows.k + at * rows.keys.row_bytes, n * rows.keys.row_bytes);
    }
    if (!c.v_in_k) ahead->Add(rows.v + at * rows.values.row_bytes, n * rows.values.row_bytes);
    p += n;
  }
}

// Rows [at, at + n) of one head in a block to out->row[place ...].
inline void PutRows(const KvArray& a, const uint8_t* head, int64_t at, int64_t n, int64_t place,
                    float* decoded, int64_t pad, ChunkRows* out) {
  if (IsPlain(a)) {
    for (int64_t i = 0; i < n; ++i) out->row[place + i] = head + (at + i) * a.row_bytes;
    return;
  }
  float* rows = decoded + place * pad;
  if (a.row_bytes == 0) {
    LoadKiviKeys(head, at, at + n, a.dim, rows, pad);
  } else {
    LoadRows(a, head, at, n, rows, pad);
  }
  for (int64_t i = 0; i < n; ++i) {
    out->row[place + i] = reinterpret_cast<const uint8_t*>(rows + i * pad);
  }
}

// The keys of the places base + part of a sequence of a latent cache, whose values lie in them.
inline void FindKeyRows(const CacheArrays& c, const KeySource& source, int64_t base, Places part,
                        const AttentionScratchView& s, ChunkRows* keys) {
  keys->type = IsPlain(c.keys) ? c.keys.type : KvType::kF32;
  for (int64_t place = part.from; place < part.to;) {
    const int64_t block = (base + place) / c.keys.block_size;
    const int64_t at = base + place - block * c.keys.block_size;
    const int64_t n = Least(part.to - place, c.keys.block_size - at);
    const HeadRows rows = HeadIn(c, source, block, 0);
    PutRows(rows.keys, rows.k, at, n, place, s.k_rows, s.k_pad, keys);
    place += n;
  }
}

// Rows of the places base + part of a sequence. Those of kivi2's two forms may follow each other in
// one chunk: the plain ones are decoded then, too.
inline void FindRows(const CacheArrays& c, const KeySource& source, int64_t kv_head, int64_t base,
                     Places part, const AttentionScratchView& s, ChunkRows* keys,
                     ChunkRows* values) {
  if (c.v_in_k) {
    FindKeyRows(c, source, base, part, s, keys);
    *values = *keys;
    return;
  }
  const int64_t block_size = c.keys.block_size;
  keys->type = IsPlain(c.keys) ? c.keys.type : KvType::kF32;
  values->type = IsPlain(c.values) ? c.values.type : KvType::kF32;
  for (int64_t place = part.from; place < part.to;) {
    const int64_t block = (base + place) / block_size;
    const int64_t at = base + place - block * block_size;
    const int64_t n = Least(part.to - place, block_size - at);
    const HeadRows rows = HeadIn(c, source, block, kv_head);
    if (c.kivi && IsPlain(rows.keys)) {
      LoadRows(rows.keys, rows.k, at, n, s.k_rows + place * s.k_pad, s.k_pad);
      LoadRows(rows.values, rows.v, at, n, s.v_rows + place * s.v_pad, s.v_pad);
      for (int64_t i = place; i < place + n; ++i) {
        keys->row[i] = reinterpret_cast<const uint8_t*>(s.k_rows + i * s.k_pad);
        values->row[i] = reinterpret_cast<const uint8_t*>(s.v_rows + i * s.v_pad);
      }
    } else {
      PutRows(rows.keys, rows.k, at, n, place, s.k_rows, s.k_pad, keys);
      PutRows(rows.values, rows.v, at, n, place, s.v_rows, s.v_pad, values);
    }
    place += n;
  }
}

// Vectors of plain rows.
struct LoadsF32 {
  static constexpr int64_t kBytes = 4;
  static F At(const uint8_t* p) {
    F v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
};
struct LoadsF16 {
  static constexpr int64_t kBytes = 2;
  static F At(const uint8_t* p) { return LoadF16(p); }
};
struct LoadsBf16 {
  static constexpr int64_t kBytes = 2;
  static F At(const uint8_t* p) { return LoadBf16(p); }
};
// Calls body(Loads...()) for the type.
template <typename Body>
[[gnu::always_inline]] inline void WithLoads(KvType type, Body&& body) {
  if (type == KvType::kF16) {
    body(LoadsF16());
  } else if (type == KvType::kBF16) {
    body(LoadsBf16());
  } else {
    body(LoadsF32());
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
