// Linear, LinearGroup and GluLinear of packed weights on tiles of bfloat16 pairs, for rows of
// prompts. Rows of replies, and of logits, go to the integer kernels of another table: a step may
// hold both, and then each run of consecutive rows of one phase goes its way.
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
#include "kernels/cpu/tile_unpack-inl.h"
#include "kernels/packed.h"
#include "kernels/split.h"
#include "kernels/table.h"

namespace lucid::LUCID_ISA {
namespace {

// Sizes are of the sums and operands of one thread: 16 KB of activations stay in the first-level
// cache while the panel passes by; the panel and its sums for 512 rows take 768 KB of the second.
constexpr int64_t kBlockRows = 2 * kTileRows;  // of 2 x 2 tiles of sums
constexpr int64_t kPanelStrips = 4 * kPairStrips;
constexpr int64_t kPanelWidth = kPanelStrips * kStripRows;
constexpr int64_t kPanelSteps = 64;  // of 32 columns: 2048 columns are unpacked at a time
constexpr int64_t kSliceSteps = 8;   // summed before the next pair of strips

struct TileProduct {
  UnpackFn unpack;
  const uint8_t* w;
  StripTiles shape;
  int64_t strip_bytes;
  int64_t n_out;
  int64_t strips;
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
          (n_out + kStripRows - 1) / kStripRows,
          a.bias};
}

// --- rows ---

// Consecutive rows of one phase.
struct RowRun {
  int64_t begin;
  int64_t rows;  // 0: the step is over
  bool prompt;
};
inline RowRun RunFrom(const StepView& step, int64_t begin) {
  RowRun run = {begin, 0, begin < step.n_tokens && step.phases[begin] == Phase::kPrompt};
  while (begin + run.rows < step.n_tokens &&
         (step.phases[begin + run.rows] == Phase::kPrompt) == run.prompt) {
    ++run.rows;
  }
  return run;
}
inline bool HasPrompts(const StepView& step, RowAxis axis) {
  if (axis == RowAxis::kOutputs || step.phases == nullptr) return false;
  const RowRun first = RunFrom(step, 0);
  return first.prompt || first.rows < step.n_tokens;
}

// Rounded activations of a step by row; those of a run are tiles `a` of up to 16 rows, the 32
// columns of a step after those of the one before.
struct TileRows {
  uint8_t* data;
  int64_t steps;
  int64_t RowBytes() const { return steps * 64; }
  uint8_t* At(int64_t row) const { return data + row * RowBytes(); }
};
inline TileRows TileRowsOf(const LinearArgs& a, const ThreadSlot& thread) {
  return {reinterpret_cast<uint8_t*>(thread.shared) + kSharedCounterBytes,
          a.w.shape[1] / kPackedBlock};
}

inline void RoundTile(const float* x, int64_t rows, int64_t steps, uint8_t* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < steps; ++k) {
      StoreRowOfA(x + (r * steps + k) * kPackedBlock, to + (k * rows + r) * 64);
    }
  }
}
// This thread's share of a run.
inline void RoundRun(const LinearArgs& a, const RowRun& run, const ThreadSlot& thread) {
  const TileRows to = TileRowsOf(a, thread);
  const Share share = ShareOf(run.rows, kTileRows, thread);
  for (int64_t r = share.begin; r < share.end; r += kTileRows) {
    const int64_t row = run.begin + r;
    RoundTile(a.x + row * a.w.shape[1], Least(kTileRows, run.rows - r), to.steps, to.At(row));
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
constexpr int64_t kTilePanelBytes = kPanelStrips * kPanelSteps * kTileBytes;
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
  RowBlock(const TileRows& x, const RowRun& run, int64_t begin, int64_t step) {
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
void SumPanel(Tiles& tiles, const TileRows& x, const RowRun& run, int64_t step, int64_t steps,
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

// Where results go: column n of row m is y[m * ldy + n].
struct TileDestination {
  float* y;
  int64_t ldy;
};

// The sums of the strips [begin, end) to their place, bias added.
inline void PutSums(const TileProduct& p, const RowRun& run, int64_t begin, int64_t end,
                    const float* all_sums, const TileDestination& to) {
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

// Strips [begin, end), kPanelStrips at most, for all rows of prompts.
template <typename Tiles>
void TilePanel(Tiles& tiles, const TileProduct& p, const StepView& step, const TileRows& x,
               int64_t begin, int64_t end, const TileDestination& to, const TileScratch& scratch) {
  for (int64_t k = 0; k < x.steps; k += kPanelSteps) {
    const int64_t steps = Least(kPanelSteps, x.steps - k);
    // A pair without a second strip repeats the last one; those sums go nowhere.
    const int64_t strips = (end - begin + 1) / kPairStrips * kPairStrips;
    for (int64_t s = 0; s < strips; ++s) {
      uint8_t* panel = scratch.panel + s / kPairStrips * kPanelSteps * kStepBytes;
      p.unpack(p.w + Least(begin + s, end - 1) * p.strip_bytes, p.shape, k, k + steps,
               panel + s % kPairStrips * kTileBytes);
    }
    for (RowRun run = RunFrom(step, 0); run.rows > 0; run = RunFrom(step, run.begin + run.rows)) {
      if (run.prompt) SumPanel(tiles, x, run, k, steps, strips, scratch);
    }
  }
  for (RowRun run = RunFrom(step, 0); run.rows > 0; run = RunFrom(step, run.begin + run.rows)) {
    if (run.prompt) PutSums(p, run, begin, end, scratch.sums, to);
  }
}
template <typename Tiles>
void TileStrips(Tiles& tiles, const TileProduct& p, const StepView& step, const TileRows& x,
                int64_t begin, int64_t end, const TileDestination& to, const TileScratch& scratch) {
  for (int64_t s = begin; s < end; s += kPanelStrips) {
    TilePanel(tiles, p, step, x, s, Least(s + kPanelStrips, end), to, scratch);
  }
}

// --- the ops ---

// What an op is here: its arguments, those of its rows from `begin` on, and its prompts.
struct LinearOnTiles {
  using Args = LinearArgs;
  static constexpr KernelOp kOp = KernelOp::kLinear;
  static const LinearArgs& First(const Args& a) { return a; }
  static Args From(Args a, int64_t begin) {
    a.x += begin * a.w.shape[1];
    if (a.y != nullptr) a.y += begin * a.w.shape[0];
    return a;
  }
  static bool Takes(const Args& a) {
    return a.packed != nullptr && FindUnpack(a.w.dtype) != nullptr;
  }
  template <typename Tiles>
  static void Prompts(Tiles& tiles, const Args& a, const StepView& step, const ThreadSlot& thread) {
    const TileProduct p = TileProductOf(a);
    const Share share = ShareOf(p.strips, kPairStrips, thread);
    TileStrips(tiles, p, step, TileRowsOf(a, thread), share.begin, share.end, {a.y, p.n_out},
               TileScratchOf(thread, step.n_tokens));
  }
};

// The threads share the strips of all members laid end to end.
struct GroupOnTiles {
  using Args = LinearGroupArgs;
  static constexpr KernelOp kOp = KernelOp::kLinearGroup;
  static const LinearArgs& First(const Args& a) { return a.linear[0]; }
  static Args From(Args a, int64_t begin) {
    for (int32_t i = 0; i < a.count; ++i) a.linear[i] = LinearOnTiles::From(a.linear[i], begin);
    return a;
  }
  static bool Takes(const Args& a) {
    for (int32_t i = 0; i < a.count; ++i) {
      if (!LinearOnTiles::Takes(a.linear[i])) return false;
    }
    return true;
  }
  static int64_t Strips(const LinearArgs& a) {
    constexpr int64_t kColumns = kPairStrips * kStripRows;
    return (a.w.shape[0] + kColumns - 1) / kColumns * kPairStrips;
  }
  template <typename Tiles>
  static void Prompts(Tiles& tiles, const Args& a, const StepView& step, const ThreadSlot& thread) {
    int64_t total = 0;
    for (int32_t i = 0; i < a.count; ++i) total += Strips(a.linear[i]);
    const Share share = ShareOf(total, kPairStrips, thread);
    const TileRows x = TileRowsOf(a.linear[0], thread);
    int64_t first = 0;
    for (int32_t i = 0; i < a.count; ++i) {
      const TileProduct p = TileProductOf(a.linear[i]);
      const int64_t begin = share.begin > first ? share.begin - first : 0;
      TileStrips(tiles, p, step, x, begin, Least(share.end - first, p.strips),
                 {a.linear[i].y, p.n_out}, TileScratchOf(thread, step.n_tokens));
      first += Strips(a.linear[i]);
    }
  }
};

// Gate and up of a panel, then both combined while they are in cache.
struct GluOnTiles {
  using Args = GluLinearArgs;
  static constexpr KernelOp kOp = KernelOp::kGluLinear;
  static const LinearArgs& First(const Args& a) { return a.gate; }
  static Args From(Args a, int64_t begin) {
    a.y += begin * a.gate.w.shape[0];
    a.gate = LinearOnTiles::From(a.gate, begin);
    a.up = LinearOnTiles::From(a.up, begin);
    return a;
  }
  static bool Takes(const Args& a) {
    return LinearOnTiles::Takes(a.gate) && LinearOnTiles::Takes(a.up);
  }
  template <typename Tiles>
  static void Prompts(Tiles& tiles, const Args& a, const StepView& step, const ThreadSlot& thread) {
    const TileProduct gate = TileProductOf(a.gate);
    const TileProduct up = TileProductOf(a.up);
    const TileRows x = TileRowsOf(a.gate, thread);
    const TileScratch scratch = TileScratchOf(thread, step.n_tokens);
    const Share share = ShareOf(gate.strips, kPairStrips, thread);
    for (int64_t s = share.begin; s < share.end; s += kPanelStrips) {
      const int64_t end = Least(s + kPanelStrips, share.end);
      const int64_t n = s * kStripRows;
      TilePanel(tiles, gate, step, x, s, end, {a.y, gate.n_out}, scratch);
      TilePanel(tiles, up, step, x, s, end, {scratch.up - n, kPanelWidth}, scratch);
      const int64_t count = Least(end * kStripRows, gate.n_out) - n;
      for (int64_t m = 0; m < step.n_tokens; ++m) {
        if (step.phases[m] != Phase::kPrompt) continue;
        float* y = a.y + m * gate.n_out + n;
        GluRange(a.act, y, scratch.up + m * kPanelWidth, y, 0, count);
      }
    }
  }
};

// The kernel of `table` that takes these packed weights.
inline const Kernel& KernelOfReplies(const KernelTable& table, KernelOp op, const void* args) {
  for (const Kernel& kernel : table.kernels) {
    if (kernel.op == op && kernel.refuse(args) == nullptr) return kernel;
  }
  __builtin_unreachable();  // Refuse has found one
}

// Calls body(args, step, thread) for every run of rows of replies, as if it were a step (of which
// kernels of linears read the number of tokens and their phases). Its part of the shared memory
// lies behind the rounded rows of prompts.
template <typename Op, typename Body>
void ForReplies(const Kernel& kernel, const typename Op::Args& a, const StepView& step,
                const ThreadSlot& thread, Body&& body) {
  const TileRows x = TileRowsOf(Op::First(a), thread);
  auto* shared = reinterpret_cast<std::byte*>(x.At(step.n_tokens));
  for (RowRun run = RunFrom(step, 0); run.rows > 0; run = RunFrom(step, run.begin + run.rows)) {
    if (run.prompt) continue;
    const typename Op::Args args = Op::From(a, run.begin);
    StepView part = step;
    part.n_tokens = static_cast<int32_t>(run.rows);
    part.phases += run.begin;
    body(args, part, ThreadSlot{thread.index, thread.count, thread.scratch, shared});
    shared += (kernel.shared(&args, run.rows) + 63) / 64 * 64;
  }
}

// `kReplies` is the table whose kernels run the rows of replies.
template <typename Op, const KernelTable& (*kReplies)()>
bool PrepareOnTiles(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  if (!HasPrompts(step, Op::First(a).rows)) {
    return replies.prepare != nullptr && replies.prepare(args, step, thread);
  }
  ForReplies<Op>(replies, a, step, thread,
                 [&](const auto& part, const StepView& rows, const ThreadSlot& own) {
                   if (own.index == 0) memset(own.shared, 0, kSharedCounterBytes);
                   if (replies.prepare != nullptr) replies.prepare(&part, rows, own);
                 });
  for (RowRun run = RunFrom(step, 0); run.rows > 0; run = RunFrom(step, run.begin + run.rows)) {
    if (run.prompt) RoundRun(Op::First(a), run, thread);
  }
  return true;
}

template <typename Op, typename Tiles, const KernelTable& (*kReplies)()>
void RunOnTiles(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  if (!HasPrompts(step, Op::First(a).rows)) return replies.fn(args, step, thread);
  ForReplies<Op>(replies, a, step, thread,
                 [&](const auto& part, const StepView& rows, const ThreadSlot& own) {
                   replies.fn(&part, rows, own);
                 });
  Tiles tiles;
  Op::Prompts(tiles, a, step, thread);
  tiles.Release();
}

template <typename Op, const KernelTable& (*kReplies)()>
size_t ScratchOnTiles(const void* args, int64_t max_rows) {
  const size_t own = TileScratchBytes(max_rows < 1 ? 1 : max_rows);
  const size_t of_replies = KernelOfReplies(kReplies(), Op::kOp, args).scratch(args, max_rows);
  return own > of_replies ? own : of_replies;
}
// Enough for any mix of phases: in the worst, every second row is a run of a reply.
template <typename Op, const KernelTable& (*kReplies)()>
size_t SharedOnTiles(const void* args, int64_t max_rows) {
  const auto rows = static_cast<size_t>(max_rows < 1 ? 1 : max_rows);
  const Kernel& replies = KernelOfReplies(kReplies(), Op::kOp, args);
  const LinearArgs& first = Op::First(*static_cast<const typename Op::Args*>(args));
  const size_t one_row = static_cast<size_t>(first.w.shape[1]) * 2;
  const size_t run_of_one = (replies.shared(args, 1) + 63) / 64 * 64;
  return kSharedCounterBytes + rows * (one_row + run_of_one);
}
template <typename Op, const KernelTable& (*kReplies)()>
const char* RefuseOnTiles(const void* args) {
  const auto& a = *static_cast<const typename Op::Args*>(args);
  if (!Op::Takes(a)) return "wants packed weights of a type that it unpacks to bfloat16";
  const char* reason = "wants kernels for rows of replies";
  for (const Kernel& kernel : kReplies().kernels) {
    if (kernel.op != Op::kOp) continue;
    reason = kernel.refuse(args);
    if (reason == nullptr) break;
  }
  return reason;
}

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `isa` is a string literal.
#define LUCID_TILE_KERNEL(isa, name, Op, Tiles, replies)                                    \
  {                                                                                         \
    Op::kOp, name "." isa, RunOnTiles<Op, Tiles, replies>, ScratchOnTiles<Op, replies>,     \
        RefuseOnTiles<Op, replies>, SharedOnTiles<Op, replies>, PrepareOnTiles<Op, replies> \
  }
#define LUCID_TILE_KERNELS(isa, Tiles, replies)                                  \
  LUCID_TILE_KERNEL(isa, "tile_linear", LinearOnTiles, Tiles, replies),          \
      LUCID_TILE_KERNEL(isa, "tile_linear_group", GroupOnTiles, Tiles, replies), \
      LUCID_TILE_KERNEL(isa, "tile_glu_linear", GluOnTiles, Tiles, replies)
