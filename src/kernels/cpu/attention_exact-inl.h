// Attention in float32: what generated tokens use, and prompts where nothing better is at hand.
//
// Keys lie in lanes while queries are multiplied with them, dims of the values while these are
// summed, so that no sum runs across a vector. A score is one chain of fused multiply-adds over
// ascending dims, a value's sum one over ascending places: the same bits in a tile of any height.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_scratch-inl.h"
#include "kernels/cpu/math-inl.h"

namespace lucid::LUCID_ISA {
namespace {

struct ExactMath {
  static void PutQuery(const float* q, float scale, int64_t dim, const AttentionScratchView& s,
                       int64_t row) {
    float* out = s.q + row * s.k_pad;
    ForVectors(
        0, dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
          StoreUpTo(out + i, LoadUpTo(q + i, n) * Set(scale), n);
        });
  }

  // s.k[d][place] of `part` and its neighbours in a vector.
  template <typename Loads>
  static void PutKeys(const ChunkRows& keys, Places part, const AttentionScratchView& s) {
    for (int64_t g = part.from / kLanes * kLanes; g < part.to; g += kLanes) {
      for (int64_t d = 0; d < s.k_pad; d += kLanes) {
        F rows[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) rows[i] = Loads::At(keys.row[g + i] + d * Loads::kBytes);
        Transpose(rows);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) Store(s.k + (d + i) * kChunk + g, rows[i]);
      }
    }
  }
  static void PutAllKeys(const ChunkRows& keys, Places part, const AttentionScratchView& s) {
    WithLoads(
        keys.type, [&](auto loads)
                       __attribute__((always_inline)) { PutKeys<decltype(loads)>(keys, part, s); });
  }
  static void PutAllValues(const ChunkRows& values, Places part, const AttentionScratchView& s) {
    WithLoads(
        values.type, [&](auto loads) __attribute__((always_inline)) {
          for (int64_t place = part.from; place < part.to; ++place) {
            float* out = s.v + place * s.v_pad;
            for (int64_t d = 0; d < s.v_pad; d += kLanes) {
              Store(out + d, loads.At(values.row[place] + d * loads.kBytes));
            }
          }
        });
  }

  static int64_t ScoreRounds(const AttentionScratchView& s, Places part) {
    constexpr int64_t kWidth = kTileVectors * kLanes;
    return ((part.to + kWidth - 1) / kWidth - part.from / kWidth) * s.k_dim;
  }
  // s.weights[i][place] = q[row + i] . key, for all places of the vectors that `part` touches.
  // A round asks for kAhead lines of `lines`, ScoreRounds rounds.
  template <int R, int kAhead>
  static void Score(const AttentionScratchView& s, int64_t row, Places part,
                    const uint8_t* const* lines) {
    constexpr int64_t kWidth = kTileVectors * kLanes;
    const float* q = s.q + row * s.k_pad;
    for (int64_t g = part.from / kWidth * kWidth; g < part.to; g += kWidth) {
      F acc[R][kTileVectors];
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
        for (int n = 0; n < kTileVectors; ++n) acc[i][n] = Zero();
      }
      const float* k = s.k + g;
      for (int64_t d = 0; d < s.k_dim; ++d, k += kChunk) {
        AskFor<kAhead>(&lines);
        F x[R];
#pragma GCC unroll 6
        for (int i = 0; i < R; ++i) x[i] = Set(q[i * s.k_pad + d]);
#pragma GCC unroll 4
        for (int n = 0; n < kTileVectors; ++n) {
          const F key = Load(k + n * kLanes);
#pragma GCC unroll 6
          for (int i = 0; i < R; ++i) acc[i][n] = Fma(x[i], key, acc[i][n]);
        }
      }
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
        for (int n = 0; n < kTileVectors; ++n) {
          Store(s.weights + i * kChunk + g + n * kLanes, acc[i][n]);
        }
      }
    }
  }

  static int64_t ValueRounds(Places part) {
    return part.to - part.from;
  }
  static F Power(F x) {
    return Exp2(x);
  }
  static void PutWeights(const F* w, const AttentionScratchView& s, int i) {
#pragma GCC unroll 16
    for (int n = 0; n < kChunk / kLanes; ++n) Store(s.weights + i * kChunk + n * kLanes, w[n]);
  }

  // s.sum[row + i] += weights . values of `part`, V vectors of the value from dim d on.
  template <int R, int V, int kAhead>
  static void AddVectors(const AttentionScratchView& s, int64_t row, Places part, int64_t d,
                         const uint8_t* const* lines) {
    float* sum = s.sum + row * s.v_pad + d;
    F acc[R][V];
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) acc[i][n] = Load(sum + i * s.v_pad + n * kLanes);
    }
    const float* v = s.v + part.from * s.v_pad + d;
    for (int64_t j = part.from; j < part.to; ++j, v += s.v_pad) {
      AskFor<kAhead>(&lines);
      F w[R];
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) w[i] = Set(s.weights[i * kChunk + j]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        const F value = Load(v + n * kLanes);
#pragma GCC unroll 6
        for (int i = 0; i < R; ++i) acc[i][n] = Fma(w[i], value, acc[i][n]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) Store(sum + i * s.v_pad + n * kLanes, acc[i][n]);
    }
  }
};

}  // namespace
}  // namespace lucid::LUCID_ISA
