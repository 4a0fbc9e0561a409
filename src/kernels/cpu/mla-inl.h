// Attention of prompts over a latent cache: keys and values of a head are expanded once for each
// chunk of places and meet all tokens of the prompt in the loops of attention-inl.h.
//
// In the sizes of DeepSeek-V3 expanding a place takes 131,072 multiply-adds for each head and saves
// 768 of every query against it, so it pays where many tokens share it: prompts. Generated tokens
// take the absorbed form, which is ordinary attention (models/mla.h). What a row comes to depends
// on its place and the cache alone.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/attention-inl.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kMlaRows = 512;  // tokens that meet an expanded chunk

// The view of one head's expanded keys and values, for the loops of attention.
inline AttentionArgs ExpandedArgs(const MlaArgs& a) {
  AttentionArgs args;
  args.kv = a.kv;
  args.kv.k_dim = static_cast<int32_t>(a.nope + a.rope);
  args.kv.v_dim = static_cast<int32_t>(a.v_dim());
  args.q = a.q;
  args.y = a.y;
  args.n_heads = static_cast<int32_t>(a.n_heads);
  args.scale = a.scale;
  return args;
}

struct MlaScratch {
  AttentionScratchView rows;    // of expanded keys and values
  AttentionScratchView latent;  // only k [lora + rope][kChunk] and k_rows are used
  float* w_k;                   // [lora][nope]: the head's matrices
  float* w_v;                   // [v_dim][lora]
  float* v;                     // [v_pad][kChunk]: values, dims in rows
  Places* seen;                 // [kMlaRows]
};
inline int64_t LayOutMla(const MlaArgs& a, int64_t tokens, float* scratch, MlaScratch* s) {
  const int64_t rows = Least(tokens < 1 ? 1 : tokens, kMlaRows);
  int64_t used = LayOutRows(ExpandedArgs(a).kv, rows, scratch, &s->rows);
  const auto take = [&used, scratch](int64_t floats) {
    float* begin = scratch == nullptr ? nullptr : scratch + used;
    used += (floats + 15) / 16 * 16;
    return begin;
  };
  s->latent = {};
  s->latent.k_dim = a.kv.k_dim;
  s->latent.k_pad = Padded(a.kv.k_dim);
  s->latent.k = take(s->latent.k_pad * kChunk);
  s->latent.k_rows = take(kChunk * s->latent.k_pad);
  s->w_k = take(a.lora() * a.nope);
  s->w_v = take(a.v_dim() * a.lora());
  s->v = take(s->rows.v_pad * kChunk);
  s->seen = reinterpret_cast<Places*>(take(kMlaRows * static_cast<int64_t>(sizeof(Places)) / 4));
  return used;
}

inline void DecodeHead(const ExpertMatrix& m, int64_t head, float* out) {
  const DecodeFn decode = Info(m.w.dtype).decode;
  const int64_t rows = m.w.shape[0];
  const int64_t cols = m.w.shape[1];
  const DTypeInfo& info = Info(m.w.dtype);
  const int64_t row_bytes = cols / info.block_elems * info.block_bytes;
  for (int64_t r = 0; r < rows; ++r) decode(m.data[head] + r * row_bytes, out + r * cols, cols);
}

// out[i][place] = sum over l of w[i * ld_row + l * ld_l] * latent[l][place], for R rows: one chain
// of fused multiply-adds over ascending l.
template <int R>
inline void ExpandTile(const float* w, int64_t ld_row, int64_t ld_l, int64_t n, const float* latent,
                       float* out) {
  for (int64_t g = 0; g < kChunk; g += kTileVectors * kLanes) {
    F acc[R][kTileVectors];
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) acc[i][v] = Zero();
    }
    for (int64_t l = 0; l < n; ++l) {
      F x[kTileVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) x[v] = Load(latent + l * kChunk + g + v * kLanes);
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) {
        const F weight = Set(w[i * ld_row + l * ld_l]);
#pragma GCC unroll 4
        for (int v = 0; v < kTileVectors; ++v) acc[i][v] = Fma(weight, x[v], acc[i][v]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        Store(out + i * kChunk + g + v * kLanes, acc[i][v]);
      }
    }
  }
}
inline void Expand(const float* w, int64_t rows, int64_t ld_row, int64_t ld_l, int64_t n,
                   const float* latent, float* out) {
  int64_t i = 0;
  for (; i + kQueryRows <= rows; i += kQueryRows) {
    ExpandTile<kQueryRows>(w + i * ld_row, ld_row, ld_l, n, latent, out + i * kChunk);
  }
  for (; i < rows; ++i) ExpandTile<1>(w + i * ld_row, ld_row, ld_l, n, latent, out + i * kChunk);
}

// Expanded keys and values of the places base + part, to s.rows.k and s.rows.v.
inline void ExpandChunk(const MlaArgs& a, const CacheArrays& c, const KeySource& source,
                        int64_t base, Places part, const MlaScratch& s) {
  ChunkRows latent;
  FindKeyRows(c, source, base, part, s.latent, &latent);
  for (int64_t i = part.to; i % kLanes != 0; ++i) latent.row[i] = latent.row[part.from];
  ExactMath::PutAllKeys(latent, part, s.latent);
  // What lies behind the part is computed as well and masked, as in AttendRows.
  Expand(s.w_k, a.nope, 1, a.nope, a.lora(), s.latent.k, s.rows.k);
  memcpy(s.rows.k + a.nope * kChunk, s.latent.k + a.lora() * kChunk,
         static_cast<size_t>(a.rope * kChunk) * sizeof(float));
  Expand(s.w_v, a.v_dim(), a.lora(), 1, a.lora(), s.latent.k, s.v);
  for (int64_t d = 0; d < s.rows.v_pad; d += kLanes) {
    for (int64_t g = 0; g < part.to; g += kLanes) {
      F rows[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = d + i < a.v_dim() ? Load(s.v + (d + i) * kChunk + g) : Zero();
      }
      Transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) Store(s.rows.v + (g + i) * s.rows.v_pad + d, rows[i]);
    }
  }
}

// Tokens [begin, begin + count) of a sequence, all of a prompt, with one head.
inline void AttendExpanded(const MlaArgs& a, const StepView& step, const CacheArrays& c,
                           int64_t begin, int64_t count, int64_t head, const MlaScratch& s) {
  const AttentionArgs args = ExpandedArgs(a);
  const KeySource source = {step.Table(a.kv.pages, step.sequence[begin]), nullptr, 0};
  for (int64_t r = 0; r < count; ++r) {
    s.seen[r] = {0, PlaceOf(a.kv, step, begin + r) + 1};
    const float* q = a.q + ((begin + r) * a.n_heads + head) * (a.nope + a.rope);
    ExactMath::PutQuery(q, QueryFactor(args), a.nope + a.rope, s.rows, r);
    StartAll(AllOf(s.rows, r));
  }
  const int64_t places = s.seen[count - 1].to;
  for (int64_t piece = 0; piece < places; piece += kPiece) {
    StartPiece(s.rows, count);
    for (int64_t base = piece; base < Least(places, piece + kPiece); base += kChunk) {
      const Places part = {0, Least(kChunk, places - base)};
      ExpandChunk(a, c, source, base, part, s);
      int64_t first = 0;
      while (s.seen[first].to <= base) ++first;
      Ahead ahead;
      ForTiles(first, count, [&](int64_t row, int64_t height) {
        AttendUpTo<ExactMath, 0>(height, args, s.rows, row, base, part, s.seen, &ahead);
      });
    }
    EndPiece(s.rows, count, nullptr);
  }
  for (int64_t r = 0; r < count; ++r) {
    PutOutput(args, (begin + r) * a.n_heads + head, AllOf(s.rows, r));
  }
}

void MlaAttention(const void* arguments, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const MlaArgs*>(arguments);
  MlaScratch s;
  LayOutMla(a, step.n_tokens, reinterpret_cast<float*>(thread.scratch), &s);
  const CacheArrays c = ArraysOf(a.kv);
  int64_t item = 0;
  for (int64_t token = 0; token < step.n_tokens;) {
    const int64_t end = SequenceEnd(step, token);
    while (token < end && IsGenerated(step, token)) ++token;
    int64_t last = token;
    while (last < end && !IsGenerated(step, last)) ++last;
    for (int64_t head = 0; token < last && head < a.n_heads; ++head, ++item) {
      if (item % thread.count != thread.index) continue;
      DecodeHead(a.w_k, head, s.w_k);
      DecodeHead(a.w_v, head, s.w_v);
      for (int64_t t = token; t < last; t += kMlaRows) {
        AttendExpanded(a, step, c, t, Least(kMlaRows, last - t), head, s);
      }
    }
    token = last > token ? last : end;
  }
}

size_t MlaAttentionScratch(const void* args, int64_t max_rows) {
  MlaScratch s;
  return static_cast<size_t>(LayOutMla(*static_cast<const MlaArgs*>(args), max_rows, nullptr, &s)) *
         sizeof(float);
}

}  // namespace
}  // namespace lucid::LUCID_ISA
