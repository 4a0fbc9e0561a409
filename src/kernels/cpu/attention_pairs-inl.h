// Attention on bfloat16 pairs: what prompts use where the CPU multiplies them (AVX512_BF16), twice
// the products a cycle. Scaled queries, keys, weights and values are rounded to bfloat16; products
// are summed in float32, two at a time over ascending dims or places.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_scratch-inl.h"
#include "kernels/cpu/math-inl.h"

#if defined(LUCID_HAS_PAIRS)
namespace lucid::LUCID_ISA {
namespace {

struct PairsMath {
  static uint32_t* Queries(const AttentionScratchView& s, int64_t row) {
    return reinterpret_cast<uint32_t*>(s.q) + row * s.k_pad / 2;
  }
  static void PutQuery(const float* q, float scale, int64_t dim, const AttentionScratchView& s,
                       int64_t row) {
    uint16_t* out = reinterpret_cast<uint16_t*>(Queries(s, row));
    for (int64_t i = 0; i < s.k_pad; ++i) out[i] = i < dim ? ToBf16(q[i] * scale) : uint16_t{0};
  }

  // s.k[d / 2][place]: dims d and d + 1.
  template <typename Loads>
  static void PutKeys(const ChunkRows& keys, Places part, const AttentionScratchView& s) {
    auto* out = reinterpret_cast<uint32_t*>(s.k);
    for (int64_t g = part.from / kLanes * kLanes; g < part.to; g += kLanes) {
      for (int64_t d = 0; d < s.k_pad; d += kLanes) {
        F rows[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) rows[i] = Loads::At(keys.row[g + i] + d * Loads::kBytes);
        Transpose(rows);
#pragma GCC unroll 8
        for (int i = 0; i < kLanes; i += 2) {
          StorePairs(out + (d + i) / 2 * kChunk + g, PairLanes(rows[i], rows[i + 1]));
        }
      }
    }
  }
  static void PutAllKeys(const ChunkRows& keys, Places part, const AttentionScratchView& s) {
    WithLoads(
        keys.type, [&](auto loads)
                       __attribute__((always_inline)) { PutKeys<decltype(loads)>(keys, part, s); });
  }
  // A place outside of `part` that shares a pair with one inside has weight 0; zero values keep it
  // from being NaN.
  static void PutAllValues(const ChunkRows& values, Places part, const AttentionScratchView& s) {
    auto* out = reinterpret_cast<uint32_t*>(s.v);
    WithLoads(
        values.type, [&](auto loads) __attribute__((always_inline)) {
          for (int64_t j = part.from / 2; 2 * j < part.to; ++j) {
            const bool first = 2 * j >= part.from;
            const bool second = 2 * j + 1 < part.to;
            for (int64_t d = 0; d < s.v_pad; d += kLanes) {
              const int64_t at = d * loads.kBytes;
              const F a = first ? loads.At(values.row[2 * j] + at) : Zero();
              const F b = second ? loads.At(values.row[2 * j + 1] + at) : Zero();
              StorePairs(out + j * s.v_pad + d, PairLanes(a, b));
            }
          }
        });
  }

  static int64_t ScoreRounds(const AttentionScratchView& s, Places /*part*/) {
    return s.k_pad / 2;
  }
  template <int R, int kAhead>
  static void Score(const AttentionScratchView& s, int64_t row, Places /*part*/,
                    const uint8_t* const* lines) {
    static_assert(kTileVectors * kLanes == kChunk);
    const uint32_t* q = Queries(s, row);
    const int64_t ldq = s.k_pad / 2;
    F acc[R][kTileVectors];
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < kTileVectors; ++n) acc[i][n] = Zero();
    }
    const auto* k = reinterpret_cast<const uint32_t*>(s.k);
    for (int64_t d = 0; d < ldq; ++d, k += kChunk) {
      AskFor<kAhead>(&lines);
      Pairs x[R];
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) x[i] = SetPairs(q + i * ldq + d);
#pragma GCC unroll 4
      for (int n = 0; n < kTileVectors; ++n) {
        const Pairs key = LoadPairs(k + n * kLanes);
#pragma GCC unroll 6
        for (int i = 0; i < R; ++i) acc[i][n] = DotPairs(x[i], key, acc[i][n]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (int n = 0; n < kTileVectors; ++n) Store(s.weights + i * kChunk + n * kLanes, acc[i][n]);
    }
  }

  static int64_t ValueRounds(Places part) {
    return (part.to + 1) / 2 - part.from / 2;
  }
  static F Power(F x) {
    return Exp2Rough(x);
  }
  static void PutWeights(const F* w, const AttentionScratchView& s, int i) {
    uint32_t* out = s.pairs + i * kChunk / 2;
#pragma GCC unroll 2
    for (int n = 0; n < kChunk / kLanes; n += 2) {
      StorePairs(out + n * kLanes / 2, PairNeighbours(w[n], w[n + 1]));
    }
  }

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
    const int64_t first = part.from / 2;
    const uint32_t* v = reinterpret_cast<const uint32_t*>(s.v) + first * s.v_pad + d;
    for (int64_t j = first; 2 * j < part.to; ++j, v += s.v_pad) {
      AskFor<kAhead>(&lines);
      Pairs w[R];
#pragma GCC unroll 6
      for (int i = 0; i < R; ++i) w[i] = SetPairs(s.pairs + i * kChunk / 2 + j);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        const Pairs value = LoadPairs(v + n * kLanes);
#pragma GCC unroll 6
        for (int i = 0; i < R; ++i) acc[i][n] = DotPairs(w[i], value, acc[i][n]);
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
#endif
