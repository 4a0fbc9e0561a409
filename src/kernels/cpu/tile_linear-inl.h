// Linear, LinearGroup and GluLinear of packed weights on tiles of bfloat16 pairs, for rows of
// prompts (prompt_linear-inl.h says where those of replies go).
//
// A first pass rounds the activations of prompts to bfloat16, in the order of a tile. Then every
// thread takes some strips of rows of the matrix: a panel of them is unpacked to bfloat16 in the
// second-level cache once and meets all rows. A sum is
//   for every 32 columns, ascending: what Tiles::Multiply adds (tile_emulated.h)
// from zero over all columns, then the bias: a row's bits do not depend on the number of rows, on
// threads or on panels. docs/adr/0012-prompts-on-tiles.md says why, and what it costs.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/prompt_linear-inl.h"
#include "kernels/cpu/tile_unpack-inl.h"
#include "kernels/packed.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// Sizes are of the sums and operands of one thread: 16 KB of activations stay in the first-level
// cache while the panel passes by; the panel and its sums for 512 rows take 768 KB of the second.
constexpr int64_t kBlockRows = 2 * kTileRows;  // of 2 x 2 tiles of sums
constexpr int64_t kTilePanelStrips = 4 * kPairStrips;
constexpr int64_t kPanelWidth = kTilePanelStrips * kStripRows;
constexpr int64_t kPanelSteps = 64;  // of 32 columns: 2048 columns are unpacked at a time
constexpr int64_t kSliceSteps = 8;   // summed before the next pair of strips

struct TileProduct {
  UnpackFn unpack;
  const uint8_t* w;
  StripTiles shape;
  int64_t strip_bytes;
  int64_t n_out;
  const float* bias;
};
inline TileProduct TileProductOf(const LinearArgs& a) {
  const PackedForm* form = FindPackedForm(a.w.dtype);
  const int64_t n_in = a.w.shape[1];
  const int64_t n_out = a.w.shape[0];
  const int64_t rest = n_in % kPackedTile / kPackedBlock;
  return {FindUnpack(a.w.dtype),
          reinterpret_cast<const uint8_t*>(a.packed),
          {n_in / kPackedBlock, form->TileBytes(8), form->scale_bytes(8), form->scale_bytes(rest)},
          form->StripBytes(n_in),
          n_out,
          a.bias};
}

// --- rows ---

// Rounded activations of a step by row; those of a run are tiles `a` of up to 16 rows, the 32
// columns of a step after those of the one before.
inline int64_t TileRowBytes(int64_t n_in) {
  return n_in / kPackedBlock * 64;
}
inline void RoundTile(const float* x, int64_t rows, int64_t steps, uint8_t* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < steps; ++k) {
      StoreRowOfA(x + (r * steps + k) * kPackedBlock, to + (k * rows + r) * 64);
    }
  }
}

// --- sums ---

// Memory of a thread.
struct TileScratch {
  uint8_t* panel;  // [pair of strips][step][strip of the pair] tiles `b`
  // Of every row, what is summed for the strips of a panel: of a block of rows [strip][row][16].
  float* sums;
  float* up;  // [rows][kPanelWidth]: GluLinear's second product
};
constexpr int64_t kTilePanelBytes = kTilePanelStrips * kPanelSteps * kTileBytes;
inline size_t TileScratchBytes(int64_t rows) {
  return static_cast<size_t>(kTilePanelBytes + 2 * rows * kPanelWidth * 4);
}
inline TileScratch TileScratchOf(const ThreadSlot& thread, int64_t rows) {
  auto* panel = reinterpret_cast<uint8_t*>(thread.scratch);
  auto* sums = reinterpret_cast<float*>(panel + kTilePanelBytes);
  return {panel, sums, sums + rows * kPanelWidth};
}

// A block of up to 32 rows from some step on.
struct RowBlock {
  const uint8_t* a[2];
  int64_t rows[2];  // 16 at most; [1] may be 0
  RowBlock(const RoundedPrompts& x, const RowRun& run, int64_t begin, int64_t step) {
    for (int i = 0; i < 2; ++i) {
      const int64_t first = begin + i * kTileRows;
      rows[i] = first < run.rows ? Least(kTileRows, run.rows - first) : 0;
      a[i] = x.At(run.begin + first) + step * rows[i] * 64;
    }
  }
  int64_t all() const { return rows[0] + rows[1]; }
};

// sums[2 strips][rows][16] += the products of `steps` steps; `first`: = them. kTiles: 2 where the
// block has more than 16 rows.
template <int kTiles, typename Tiles>
void SumPair(Tiles& tiles, const RowBlock& block, const uint8_t* w, int64_t steps, bool first,
             float* sums) {
  float* const next = sums + block.all() * 16;
  constexpr int64_t kSecond = kTileRows * 16;
  if (first) {
    tiles.template ZeroSum<0, 0>();
    tiles.template ZeroSum<0, 1>();
    if constexpr (kTiles == 2) tiles.template ZeroSum<1, 0>();
    if constexpr (kTiles == 2) tiles.template ZeroSum<1, 1>();
  } else {
    tiles.template LoadSum<0, 0>(sums);
    tiles.template LoadSum<0, 1>(next);
    if constexpr (kTiles == 2) tiles.template LoadSum<1, 0>(sums + kSecond);
    if constexpr (kTiles == 2) tiles.template LoadSum<1, 1>(next + kSecond);
  }
  for (int64_t k = 0; k < steps; ++k, w += kStepBytes) {
    tiles.template LoadA<0>(block.a[0] + k * block.rows[0] * 64);
    tiles.template LoadB<0>(w);
    tiles.template LoadB<1>(w + kTileBytes);
    tiles.template Multiply<0, 0>();
    tiles.template Multiply<0, 1>();
    if constexpr (kTiles == 2) {
      tiles.template LoadA<1>(block.a[1] + k * block.rows[1] * 64);
      tiles.template Multiply<1, 0>();
      tiles.template Multiply<1, 1>();
    }
  }
  tiles.template StoreSum<0, 0>(sums);
  tiles.template StoreSum<0, 1>(next);
  if constexpr (kTiles == 2) tiles.template StoreSum<1, 0>(sums + kSecond);
  if constexpr (kTiles == 2) tiles.template StoreSum<1, 1>(next + kSecond);
}

// The rows of a run against steps [step, step + steps) of a panel.
template <typename Tiles>
void SumPanel(Tiles& tiles, const RoundedPrompts& x, const RowRun& run, int64_t step, int64_t steps,
              int64_t strips, const TileScratch& scratch) {
  for (int64_t m = 0; m < run.rows; m += kBlockRows) {
    float* sums = scratch.sums + (run.begin + m) * kPanelWidth;
    for (int64_t k = 0; k < steps; k += kSliceSteps) {
      const RowBlock block(x, run, m, step + k);
      const int64_t count = Least(kSliceSteps, steps - k);
      tiles.Configure(block.all());
      for (int64_t s = 0; s < strips; s += kPairStrips) {
        const uint8_t* w = scratch.panel + (s / kPairStrips * kPanelSteps + k) * kStepBytes;
        float* to = sums + s * block.all() * 16;
        if (block.rows[1] > 0) {
          SumPair<2>(tiles, block, w, count, step + k == 0, to);
        } else {
          SumPair<1>(tiles, block, w, count, step + k == 0, to);
        }
      }
    }
  }
}

// The sums of the strips [begin, end) to their place, bias added.
inline void PutSums(const TileProduct& p, const RowRun& run, int64_t begin, int64_t end,
                    const float* all_sums, const PromptDestination& to) {
  for (int64_t m = 0; m < run.rows; ++m) {
    const int64_t first = m / kBlockRows * kBlockRows;
    const int64_t rows = Least(kBlockRows, run.rows - first);
    const float* sums = all_sums + (run.begin + first) * kPanelWidth + (m - first) * 16;
    for (int64_t s = begin; s < end; ++s, sums += rows * 16) {
      const int64_t n = s * kStripRows;
      const int64_t count = Least(kStripRows, p.n_out - n);
      float* y = to.y + (run.begin + m) * to.ldy + n;
      for (int64_t c = 0; c < count; ++c)
        y[c] = p.bias != nullptr ? sums[c] + p.bias[n + c] : sums[c];
    }
  }
}

// Strips [begin, end), kTilePanelStrips at most, for all rows of prompts.
template <typename Tiles>
void TilePanel(Tiles& tiles, const TileProduct& p, const StepView& step, const RoundedPrompts& x,
               int64_t begin, int64_t end, const PromptDestination& to,
               const TileScratch& scratch) {
  for (int64_t k = 0; k < p.shape.steps; k += kPanelSteps) {
    const int64_t steps = Least(kPanelSteps, p.shape.steps - k);
    // A pair without a second strip repeats the last one; those sums go nowhere.
    const int64_t strips = (end - begin + 1) / kPairStrips * kPairStrips;
    for (int64_t s = 0; s < strips; ++s) {
      uint8_t* panel = scratch.panel + s / kPairStrips * kPanelSteps * kStepBytes;
      p.unpack(p.w + Least(begin + s, end - 1) * p.strip_bytes, p.shape, k, k + steps,
               panel + s % kPairStrips * kTileBytes);
    }
    ForPrompts(step,
               [&](const RowRun& run) { SumPanel(tiles, x, run, k, steps, strips, scratch); });
  }
  ForPrompts(step, [&](const RowRun& run) { PutSums(p, run, begin, end, scratch.sums, to); });
}

// The method of prompts (prompt_linear-inl.h).
template <typename Tiles>
class OnTiles {
 public:
  static constexpr int64_t kUnit = kPairStrips;
  static constexpr int64_t kPanelStrips = kTilePanelStrips;
  ~OnTiles() { tiles_.Release(); }

  static const char* Refuse(const LinearArgs& a) {
    if (FindUnpack(a.w.dtype) != nullptr) return nullptr;
    return "wants packed weights of a type that it unpacks to bfloat16";
  }
  static int64_t RowBytes(int64_t n_in) { return TileRowBytes(n_in); }
  static void Round(const LinearArgs& a, const RowRun& run, const ThreadSlot& thread) {
    const RoundedPrompts to = RoundedPromptsOf<OnTiles>(a, thread);
    const int64_t n_in = a.w.shape[1];
    const Share share = ShareOf(run.rows, kTileRows, thread);
    for (int64_t r = share.begin; r < share.end; r += kTileRows) {
      const int64_t row = run.begin + r;
      RoundTile(a.x + row * n_in, Least(kTileRows, run.rows - r), n_in / kPackedBlock, to.At(row));
    }
  }
  static size_t ScratchBytes(int64_t rows) { return TileScratchBytes(rows); }
  static float* Up(const ThreadSlot& thread, int64_t rows) {
    return TileScratchOf(thread, rows).up;
  }
  void Strips(const LinearArgs& a, const StepView& step, const ThreadSlot& thread, int64_t begin,
              int64_t end, const PromptDestination& to) {
    const TileProduct p = TileProductOf(a);
    const RoundedPrompts x = RoundedPromptsOf<OnTiles>(a, thread);
    for (int64_t s = begin; s < end; s += kPanelStrips) {
      TilePanel(tiles_, p, step, x, s, Least(s + kPanelStrips, end), to,
                TileScratchOf(thread, step.n_tokens));
    }
  }

 private:
  Tiles tiles_;
};

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `isa` is a string literal.
#define LUCID_TILE_KERNELS(isa, Tiles, replies) \
  LUCID_LINEARS_BY_PHASE("tile", isa, OnTiles<Tiles>, replies)
