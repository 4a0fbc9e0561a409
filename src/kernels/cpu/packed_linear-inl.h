// Linear, LinearGroup and GluLinear of packed weights.
//
// A first pass rounds the activations to planes (planes-inl.h), shared by all threads; a single row
// is rounded by each thread for itself, which costs less than meeting. Then every thread computes
// whole strips:
//   direct  few rows: weights are unpacked in registers as they stream by
//   panel   more rows: parts of kStripTile strips are unpacked once and meet many rows
// packed_tile-inl.h promises the same bits both ways.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/packed_tile-inl.h"
#include "kernels/cpu/planes-inl.h"
#include "kernels/packed.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// Short rows, whose activations stay in the first-level cache: kGroupPanels panels of all columns
// meet a tile of activation rows one after the other. Long rows: one panel of kLongBlocks blocks of
// 32 columns stays in the first level and meets up to kPanelRowTiles tiles, which stay in the
// second.
constexpr int64_t kShortBlocks = 32;
constexpr int64_t kLongBlocks = 16;
constexpr int64_t kPanelRowTiles = 512 / kRowTile;
constexpr int64_t kGroupPanels = 8;
constexpr int64_t kPanelColumns = kStripTile * kStripRows;

inline int64_t RoundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

struct PackedProduct {
  PackedKernels kernels;
  const uint8_t* w;
  StripShape shape;
  int64_t strip_bytes;
  int64_t n_out;
  int64_t strips;
  const float* bias;
};

inline PackedProduct PackedProductOf(const LinearArgs& a) {
  const PackedForm* form = FindPackedForm(a.w.dtype);
  const int64_t n_in = a.w.shape[1];
  const int64_t n_out = a.w.shape[0];
  return {FindPackedKernels(a.w.dtype),
          reinterpret_cast<const uint8_t*>(a.packed),
          StripShapeOf(*form, n_in),
          form->StripBytes(n_in),
          n_out,
          RoundUp(n_out, kStripRows) / kStripRows,
          a.bias};
}

// The rounded activations of a step.
struct RoundedRows {
  const uint8_t* data;
  int64_t rows;
  int64_t blocks;
  int64_t tiles() const { return (rows + kRowTile - 1) / kRowTile; }
  int64_t RowsOfTile(int64_t t) const { return Least(kRowTile, rows - t * kRowTile); }
  const uint8_t* Block(int64_t t, int64_t b) const {
    return data + t * blocks * PlaneBlockBytes(kRowTile) + b * PlaneBlockBytes(RowsOfTile(t));
  }
};

// Where results go: column n of row m is y[m * ldy + n].
struct Destination {
  float* y;
  int64_t ldy;
};

inline void AddBias(const PackedProduct& p, int64_t n, int64_t count, float* y) {
  if (p.bias == nullptr) return;
  for (int64_t c = 0; c < count; ++c) y[c] += p.bias[n + c];
}

// --- direct ---

// The sums of strip `s` for the rows of tile `t`, bias added: out[rows][16].
inline void DirectStrip(const PackedProduct& p, const RoundedRows& x, int64_t s, int64_t t,
                        const WeightStream& stream, float* out) {
  const int64_t rows = x.RowsOfTile(t);
  p.kernels.direct[rows - 1](p.w + s * p.strip_bytes, p.shape, stream, x.Block(t, 0), out);
  const int64_t n = s * kStripRows;
  for (int64_t r = 0; r < rows; ++r) {
    AddBias(p, n, Least(kStripRows, p.n_out - n), out + r * kStripRows);
  }
}

inline void DirectStrips(const PackedProduct& p, const RoundedRows& x, int64_t begin, int64_t end,
                         Destination to, const uint8_t* next) {
  const uint8_t* last = p.w + end * p.strip_bytes;
  const WeightStream stream = {last, next == nullptr ? 0 : next - last};
  alignas(64) float out[kRowTile * kStripRows];
  for (int64_t s = begin; s < end; ++s) {
    const int64_t n = s * kStripRows;
    const auto bytes = static_cast<size_t>(Least(kStripRows, p.n_out - n)) * sizeof(float);
    for (int64_t t = 0; t < x.tiles(); ++t) {
      DirectStrip(p, x, s, t, stream, out);
      for (int64_t r = 0; r < x.RowsOfTile(t); ++r) {
        memcpy(to.y + (t * kRowTile + r) * to.ldy + n, out + r * kStripRows, bytes);
      }
    }
  }
}

// --- panel ---

// Of a strip, a block of a panel has 8 groups of numbers and at most 4 vectors of scales.
constexpr int64_t kPanelBlockBytes = kStripTile * (8 + 4) * kPlaneBytes;

// Memory of a thread.
struct PanelScratch {
  uint8_t* panels;
  float* edge;  // [rows][kPanelColumns]: a panel that reaches over the last column
  float* up;    // [rows][kGroupPanels * kPanelColumns]: GluLinear's second product
};

// Part of a product: strips [strip, strip_end) and tiles [tile, tile_end) of columns, for row tiles
// [begin, end).
struct PanelPart {
  int64_t strip, strip_end;
  int64_t tile, tile_end;
  int64_t begin, end;
};

inline void UnpackPanel(const PackedProduct& p, const PanelPart& part, int64_t strip,
                        uint8_t* panel) {
  for (int v = 0; v < kStripTile; ++v) {
    // Beyond the last strip the panel repeats it; those sums are dropped.
    const int64_t s = Least(strip + v, part.strip_end - 1);
    p.kernels.unpack(p.w + s * p.strip_bytes, p.shape, part.tile, part.tile_end, v, panel);
  }
}

// A panel, the one of `strip`, for one tile of rows.
inline void PanelTileOf(const PackedProduct& p, const RoundedRows& x, const PanelPart& part,
                        int64_t strip, int64_t t, const uint8_t* panel, Destination to,
                        float* edge) {
  const int64_t block = part.tile * 8;
  const int64_t blocks = Least(part.tile_end * 8, p.shape.blocks()) - block;
  const int64_t n = strip * kStripRows;
  const bool whole = strip + kStripTile <= part.strip_end && n + kPanelColumns <= p.n_out;
  const int64_t ldy = whole ? to.ldy : kPanelColumns;
  float* y = whole ? to.y + t * kRowTile * to.ldy + n : edge + t * kRowTile * ldy;
  const int64_t rows = x.RowsOfTile(t);
  p.kernels.panel[rows - 1](panel, blocks, p.kernels.taken_off_bits, x.Block(t, block), block == 0,
                            y, ldy);
  if (block + blocks < p.shape.blocks()) return;
  const int64_t columns =
      Least(Least(kPanelColumns, (part.strip_end - strip) * kStripRows), p.n_out - n);
  for (int64_t r = 0; r < rows; ++r) {
    AddBias(p, n, columns, y + r * ldy);
    if (whole) continue;
    memcpy(to.y + (t * kRowTile + r) * to.ldy + n, y + r * ldy,
           static_cast<size_t>(columns) * sizeof(float));
  }
}

inline void ShortPanels(const PackedProduct& p, const RoundedRows& x, const PanelPart& part,
                        Destination to, const PanelScratch& scratch) {
  const int64_t panel_bytes = p.shape.blocks() * kPanelBlockBytes;
  int64_t i = 0;
  for (int64_t s = part.strip; s < part.strip_end; s += kStripTile, ++i) {
    UnpackPanel(p, part, s, scratch.panels + i * panel_bytes);
  }
  for (int64_t t = part.begin; t < part.end; ++t) {
    i = 0;
    for (int64_t s = part.strip; s < part.strip_end; s += kStripTile, ++i) {
      PanelTileOf(p, x, part, s, t, scratch.panels + i * panel_bytes, to, scratch.edge);
    }
  }
}

inline void LongPanels(const PackedProduct& p, const RoundedRows& x, const PanelPart& part,
                       Destination to, const PanelScratch& scratch) {
  for (int64_t s = part.strip; s < part.strip_end; s += kStripTile) {
    UnpackPanel(p, part, s, scratch.panels);
    for (int64_t t = part.begin; t < part.end; ++t) {
      PanelTileOf(p, x, part, s, t, scratch.panels, to, scratch.edge);
    }
  }
}

// Strips [begin, end), at most kGroupPanels panels of them.
inline void PanelStrips(const PackedProduct& p, const RoundedRows& x, int64_t begin, int64_t end,
                        Destination to, const PanelScratch& scratch) {
  const int64_t tiles = p.shape.whole + (p.shape.rest > 0 ? 1 : 0);
  if (p.shape.blocks() <= kShortBlocks) {
    return ShortPanels(p, x, {begin, end, 0, tiles, 0, x.tiles()}, to, scratch);
  }
  for (int64_t t = 0; t < x.tiles(); t += kPanelRowTiles) {
    const int64_t end_t = Least(t + kPanelRowTiles, x.tiles());
    for (int64_t tile = 0; tile < tiles; tile += kLongBlocks / 8) {
      const int64_t end_tile = Least(tile + kLongBlocks / 8, tiles);
      LongPanels(p, x, {begin, end, tile, end_tile, t, end_t}, to, scratch);
    }
  }
}

// `next`: the weights that this thread reads afterwards, or nullptr.
inline void PackedStrips(const PackedProduct& p, const RoundedRows& x, int64_t begin, int64_t end,
                         Destination to, const PanelScratch& scratch,
                         const uint8_t* next = nullptr) {
  if (begin >= end || x.rows == 0) return;
  if (x.rows <= kDirectRows) return DirectStrips(p, x, begin, end, to, next);
  constexpr int64_t kStep = kGroupPanels * kStripTile;
  for (int64_t s = begin; s < end; s += kStep) {
    PanelStrips(p, x, s, Least(s + kStep, end), to, scratch);
  }
}

// --- memory ---

constexpr int64_t kPackedPanelBytes = kGroupPanels * kShortBlocks * kPanelBlockBytes;

inline size_t PackedScratchBytes(int64_t n_in, int64_t max_rows) {
  const int64_t rows = RoundUp(max_rows < 1 ? 1 : max_rows, kRowTile);
  const int64_t floats = rows * kPanelColumns * (1 + kGroupPanels);
  return static_cast<size_t>(kPackedPanelBytes + floats * static_cast<int64_t>(sizeof(float)) +
                             PlaneBytes(1, n_in, kRowTile));
}
inline PanelScratch PanelScratchOf(const ThreadSlot& thread, int64_t rows) {
  PanelScratch s;
  s.panels = reinterpret_cast<uint8_t*>(thread.scratch);
  s.edge = reinterpret_cast<float*>(s.panels + kPackedPanelBytes);
  s.up = s.edge + RoundUp(rows, kRowTile) * kPanelColumns;
  return s;
}

// What PreparePacked has made, or for a single row this thread's own.
inline RoundedRows RoundedInput(const LinearArgs& a, const StepView& step,
                                const ThreadSlot& thread) {
  const int64_t rows = step.rows(a.rows);
  const int64_t n_in = a.w.shape[1];
  if (rows != 1) {
    return {reinterpret_cast<const uint8_t*>(thread.shared) + kSharedCounterBytes, rows,
            n_in / kPackedBlock};
  }
  const PanelScratch s = PanelScratchOf(thread, 1);
  auto* own = reinterpret_cast<uint8_t*>(s.up + kRowTile * kGroupPanels * kPanelColumns);
  RoundTiles(a, 1, 0, 1, own);
  return {own, 1, n_in / kPackedBlock};
}

inline bool PrepareInput(const LinearArgs& a, const StepView& step, const ThreadSlot& thread) {
  const int64_t rows = step.rows(a.rows);
  if (rows <= 1) return false;
  const Share share = ShareOf((rows + kRowTile - 1) / kRowTile, 1, thread);
  RoundTiles(a, rows, share.begin, share.end,
             reinterpret_cast<uint8_t*>(thread.shared) + kSharedCounterBytes);
  return true;
}

inline size_t PackedSharedBytes(const LinearArgs& a, int64_t max_rows) {
  return static_cast<size_t>(kSharedCounterBytes +
                             RoundUp(PlaneBytes(max_rows, a.w.shape[1], kRowTile), 64));
}

// --- the ops ---

void PackedLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  const PackedProduct p = PackedProductOf(a);
  const RoundedRows x = RoundedInput(a, step, thread);
  const Share share = ShareOf(p.strips, kStripTile, thread);
  PackedStrips(p, x, share.begin, share.end, {a.y, p.n_out}, PanelScratchOf(thread, x.rows));
}

// The threads share the strips of all members laid end to end, each member's up to whole panels.
inline int64_t MemberStrips(const LinearArgs& a) {
  return RoundUp(a.w.shape[0], kPanelColumns) / kStripRows;
}
inline int64_t GroupStrips(const LinearGroupArgs& a) {
  int64_t total = 0;
  for (int32_t i = 0; i < a.count; ++i) total += MemberStrips(a.linear[i]);
  return total;
}
void PackedLinearGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  const RoundedRows x = RoundedInput(a.linear[0], step, thread);
  const PanelScratch scratch = PanelScratchOf(thread, x.rows);
  const Share share = ShareOf(GroupStrips(a), kStripTile, thread);
  int64_t first = 0;
  for (int32_t i = 0; i < a.count; ++i) {
    const PackedProduct p = PackedProductOf(a.linear[i]);
    const int64_t begin = share.begin > first ? share.begin - first : 0;
    const int64_t end = Least(share.end - first, p.strips);
    const void* next = i + 1 < a.count ? a.linear[i + 1].packed : nullptr;
    PackedStrips(p, x, begin, end, {a.linear[i].y, p.n_out}, scratch,
                 reinterpret_cast<const uint8_t*>(next));
    first += MemberStrips(a.linear[i]);
  }
}

// Gate and up of some strips, then both combined while they are in cache.
void PackedGluLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const PackedProduct gate = PackedProductOf(a.gate);
  const PackedProduct up = PackedProductOf(a.up);
  const RoundedRows x = RoundedInput(a.gate, step, thread);
  const PanelScratch scratch = PanelScratchOf(thread, x.rows);
  const Share share = ShareOf(gate.strips, kStripTile, thread);
  constexpr int64_t kStep = kGroupPanels * kStripTile;
  constexpr int64_t kColumns = kStep * kStripRows;
  for (int64_t s = share.begin; s < share.end; s += kStep) {
    const int64_t end = Least(s + kStep, share.end);
    const int64_t n = s * kStripRows;
    PackedStrips(gate, x, s, end, {a.y, gate.n_out}, scratch, up.w + s * up.strip_bytes);
    PackedStrips(up, x, s, end, {scratch.up - n, kColumns}, scratch,
                 gate.w + end * gate.strip_bytes);
    const int64_t count = Least(end * kStripRows, gate.n_out) - n;
    for (int64_t m = 0; m < x.rows; ++m) {
      float* y = a.y + m * gate.n_out + n;
      GluRange(a.act, y, scratch.up + m * kColumns, y, 0, count);
    }
  }
}

bool PreparePackedLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  return PrepareInput(*static_cast<const LinearArgs*>(args), step, thread);
}
bool PreparePackedGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  return PrepareInput(static_cast<const LinearGroupArgs*>(args)->linear[0], step, thread);
}
bool PreparePackedGlu(const void* args, const StepView& step, const ThreadSlot& thread) {
  return PrepareInput(static_cast<const GluLinearArgs*>(args)->gate, step, thread);
}

// The start of what a thread streams: later the stream itself asks for what is ahead.
inline void WarmStrips(const LinearArgs& a, const StepView& step, int64_t strip) {
  if (step.rows(a.rows) > kDirectRows) return;
  const PackedForm* form = FindPackedForm(a.w.dtype);
  const std::byte* w = a.packed + strip * form->StripBytes(a.w.shape[1]);
  for (int64_t i = 0; i < kPrefetchBytes; i += 64) __builtin_prefetch(w + i, 0, 0);
}
void WarmPackedLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  const int64_t strips = RoundUp(a.w.shape[0], kStripRows) / kStripRows;
  WarmStrips(a, step, ShareOf(strips, kStripTile, thread).begin);
}
void WarmPackedGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  int64_t begin = ShareOf(GroupStrips(a), kStripTile, thread).begin;
  for (int32_t i = 0; i < a.count; ++i) {
    const int64_t strips = MemberStrips(a.linear[i]);
    if (begin < strips) return WarmStrips(a.linear[i], step, begin);
    begin -= strips;
  }
}
void WarmPackedGlu(const void* args, const StepView& step, const ThreadSlot& thread) {
  WarmPackedLinear(&static_cast<const GluLinearArgs*>(args)->gate, step, thread);
}

size_t PackedLinearScratch(const void* args, int64_t max_rows) {
  return PackedScratchBytes(static_cast<const LinearArgs*>(args)->w.shape[1], max_rows);
}
size_t PackedGroupScratch(const void* args, int64_t max_rows) {
  return PackedLinearScratch(&static_cast<const LinearGroupArgs*>(args)->linear[0], max_rows);
}
size_t PackedGluScratch(const void* args, int64_t max_rows) {
  return PackedLinearScratch(&static_cast<const GluLinearArgs*>(args)->gate, max_rows);
}
size_t PackedLinearShared(const void* args, int64_t max_rows) {
  return PackedSharedBytes(*static_cast<const LinearArgs*>(args), max_rows);
}
size_t PackedGroupShared(const void* args, int64_t max_rows) {
  return PackedSharedBytes(static_cast<const LinearGroupArgs*>(args)->linear[0], max_rows);
}
size_t PackedGluShared(const void* args, int64_t max_rows) {
  return PackedSharedBytes(static_cast<const GluLinearArgs*>(args)->gate, max_rows);
}

const char* RefusePacked(const LinearArgs& a) {
  if (a.packed == nullptr) return "wants packed weights";
  return FindPackedForm(a.w.dtype)->columns == 0 ? nullptr : "wants quantised weights";
}
const char* RefusePackedLinear(const void* args) {
  return RefusePacked(*static_cast<const LinearArgs*>(args));
}
const char* RefusePackedGroup(const void* args) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  for (int32_t i = 0; i < a.count; ++i) {
    if (const char* reason = RefusePacked(a.linear[i])) return reason;
  }
  return nullptr;
}
const char* RefusePackedGlu(const void* args) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const char* reason = RefusePacked(a.gate);
  return reason != nullptr ? reason : RefusePacked(a.up);
}

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `isa` is a string literal.
#define LUCID_PACKED_KERNELS(isa)                                                                  \
  {KernelOp::kLinear,  "packed_linear." isa, PackedLinear,        PackedLinearScratch,             \
   RefusePackedLinear, PackedLinearShared,   PreparePackedLinear, WarmPackedLinear},               \
      {KernelOp::kLinearGroup, "packed_linear_group." isa, PackedLinearGroup,  PackedGroupScratch, \
       RefusePackedGroup,      PackedGroupShared,          PreparePackedGroup, WarmPackedGroup},   \
  {                                                                                                \
    KernelOp::kGluLinear, "packed_glu_linear." isa, PackedGluLinear, PackedGluScratch,             \
        RefusePackedGlu, PackedGluShared, PreparePackedGlu, WarmPackedGlu                          \
  }
