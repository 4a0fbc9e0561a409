// Linear, LinearGroup and GluLinear of packed plain types (F32, F16, BF16).
//
// Every thread computes whole strips, a few at a time, for all rows (dense_tile-inl.h). With more
// rows than a register tile has, a part of the columns goes over all rows before the next, so that
// its weights come from the first-level cache.
//
// Activations are float32; in the table whose CPU multiplies bfloat16 pairs they are rounded to
// bfloat16 first (docs/adr/0014-plain-types.md), which all threads share; a single row is rounded
// by each thread for itself.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/dense_tile-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/packed.h"
#include "kernels/split.h"
#include "kernels/table.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kDenseChunk = 512;  // columns that go over all rows

struct DenseProduct {
  DenseKernels kernels;
  const uint8_t* w;
  int64_t strip_bytes;
  int64_t words;  // of a row
  bool half;      // the last word has one column
  int64_t n_out;
  int64_t strips;
  const float* bias;
};

inline DenseProduct DenseProductOf(const LinearArgs& a) {
  const DenseKernels kernels = FindDenseKernels(a.w.dtype);
  const int64_t n_in = a.w.shape[1];
  const int64_t n_out = a.w.shape[0];
  const int64_t words = (n_in + kernels.columns - 1) / kernels.columns;
  return {kernels,
          reinterpret_cast<const uint8_t*>(a.packed),
          words * kWordBytes,
          words,
          kernels.items == 2 && n_in % 2 != 0,
          n_out,
          (n_out + kStripRows - 1) / kStripRows,
          a.bias};
}

// The activations of a step: floats, or pairs in their places.
struct DenseInput {
  const float* x;
  int64_t rows;
  int64_t ldx;
};

// sums[rows][kDenseColumns] of strips [begin, end), at most kDenseStrips of them.
inline void DenseSums(const DenseProduct& p, const DenseInput& x, int64_t begin, int64_t end,
                      float* sums) {
  DenseTileArgs a = {};
  a.strips = end - begin;
  a.ldx = x.ldx;
  const int64_t tiles = (x.rows + kDenseRows - 1) / kDenseRows;
  a.next_strip = tiles == 1 ? p.strip_bytes : 0;
  const int64_t chunk = tiles == 1 ? p.words : kDenseChunk / p.kernels.columns;
  for (int64_t word = 0; word < p.words; word += chunk) {
    a.words = Least(chunk, p.words - word);
    a.half = p.half && word + a.words == p.words;
    a.first = word == 0;
    for (int64_t v = 0; v < kDenseStrips; ++v) {
      // Beyond the last strip it is repeated; those sums are dropped.
      a.w[v] = p.w + Least(begin + v, end - 1) * p.strip_bytes + word * kWordBytes;
    }
    int64_t row = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t last = x.rows * (t + 1) / tiles;  // tiles of like size
      a.x = x.x + row * x.ldx + word * p.kernels.items;
      a.sums = sums + row * kDenseColumns;
      p.kernels.tile[last - row - 1](a);
      row = last;
    }
  }
}

inline void AddDenseBias(const DenseProduct& p, int64_t n, int64_t count, float* sums) {
  if (p.bias == nullptr) return;
  for (int64_t c = 0; c < count; ++c) sums[c] += p.bias[n + c];
}

// Strips [begin, end) of y[rows, n_out].
inline void DenseStrips(const DenseProduct& p, const DenseInput& x, int64_t begin, int64_t end,
                        float* y, float* sums) {
  for (int64_t s = begin; s < end; s += kDenseStrips) {
    DenseSums(p, x, s, Least(s + kDenseStrips, end), sums);
    const int64_t n = s * kStripRows;
    const int64_t count = Least(Least(s + kDenseStrips, end) * kStripRows, p.n_out) - n;
    for (int64_t m = 0; m < x.rows; ++m) {
      float* row = sums + m * kDenseColumns;
      AddDenseBias(p, n, count, row);
      memcpy(y + m * p.n_out + n, row, static_cast<size_t>(count) * sizeof(float));
    }
  }
}

// --- activations and memory ---

// Private memory: sums of two products, then with pairs a row of them.
inline float* DenseSumsOf(const ThreadSlot& thread) {
  return reinterpret_cast<float*>(thread.scratch);
}
inline int64_t DenseSumFloats(int64_t rows) {
  return (rows < 1 ? 1 : rows) * kDenseColumns;
}

#if defined(LUCID_HAS_PAIRS)
constexpr int64_t kPairBlock = 2 * kLanes;  // columns that are rounded at once

inline int64_t PairsOfRow(int64_t n_in) {
  return (n_in + kPairBlock - 1) / kPairBlock * kLanes;
}

// Rows [begin, end) of a.x to pairs[row][PairsOfRow(n_in)], zeros after the last column.
inline void RoundToPairs(const LinearArgs& a, int64_t begin, int64_t end, uint32_t* pairs) {
  const int64_t n_in = a.w.shape[1];
  for (int64_t m = begin; m < end; ++m) {
    const float* x = a.x + m * n_in;
    uint32_t* to = pairs + m * PairsOfRow(n_in);
    int64_t k = 0;
    for (; k + kPairBlock <= n_in; k += kPairBlock) {
      StorePairs(to + k / 2, PairNeighbours(Load(x + k), Load(x + k + kLanes)));
    }
    if (k == n_in) continue;
    const int64_t left = n_in - k;
    const F first = left < kLanes ? LoadN(x + k, left) : Load(x + k);
    const F second = left > kLanes ? LoadN(x + k + kLanes, left - kLanes) : Zero();
    StorePairs(to + k / 2, PairNeighbours(first, second));
  }
}

inline uint32_t* SharedPairs(const ThreadSlot& thread) {
  return reinterpret_cast<uint32_t*>(thread.shared + kSharedCounterBytes);
}
inline DenseInput DenseInputOf(const LinearArgs& a, const StepView& step,
                               const ThreadSlot& thread) {
  const int64_t rows = step.rows(a.rows);
  uint32_t* pairs = SharedPairs(thread);
  if (rows == 1) {
    pairs = reinterpret_cast<uint32_t*>(DenseSumsOf(thread) + 2 * DenseSumFloats(1));
    RoundToPairs(a, 0, 1, pairs);
  }
  return {reinterpret_cast<const float*>(pairs), rows, PairsOfRow(a.w.shape[1])};
}
inline bool PrepareDense(const LinearArgs& a, const StepView& step, const ThreadSlot& thread) {
  const int64_t rows = step.rows(a.rows);
  if (rows <= 1) return false;
  const Share share = ShareOf(rows, 1, thread);
  RoundToPairs(a, share.begin, share.end, SharedPairs(thread));
  return true;
}
inline int64_t OwnPairBytes(int64_t n_in) {
  return PairsOfRow(n_in) * static_cast<int64_t>(sizeof(uint32_t));
}
inline size_t DenseShared(const LinearArgs& a, int64_t max_rows) {
  return static_cast<size_t>(kSharedCounterBytes + max_rows * OwnPairBytes(a.w.shape[1]));
}

bool PrepareDenseLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  return PrepareDense(*static_cast<const LinearArgs*>(args), step, thread);
}
bool PrepareDenseGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  return PrepareDense(static_cast<const LinearGroupArgs*>(args)->linear[0], step, thread);
}
bool PrepareDenseGlu(const void* args, const StepView& step, const ThreadSlot& thread) {
  return PrepareDense(static_cast<const GluLinearArgs*>(args)->gate, step, thread);
}
size_t DenseLinearShared(const void* args, int64_t max_rows) {
  return DenseShared(*static_cast<const LinearArgs*>(args), max_rows);
}
size_t DenseGroupShared(const void* args, int64_t max_rows) {
  return DenseShared(static_cast<const LinearGroupArgs*>(args)->linear[0], max_rows);
}
size_t DenseGluShared(const void* args, int64_t max_rows) {
  return DenseShared(static_cast<const GluLinearArgs*>(args)->gate, max_rows);
}
#else
inline DenseInput DenseInputOf(const LinearArgs& a, const StepView& step, const ThreadSlot&) {
  return {a.x, step.rows(a.rows), a.w.shape[1]};
}
inline int64_t OwnPairBytes(int64_t) {
  return 0;
}
constexpr PrepareFn PrepareDenseLinear = nullptr, PrepareDenseGroup = nullptr,
                    PrepareDenseGlu = nullptr;
constexpr ScratchFn DenseLinearShared = nullptr, DenseGroupShared = nullptr,
                    DenseGluShared = nullptr;
#endif

// --- the ops ---

void DenseLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  const DenseProduct p = DenseProductOf(a);
  const DenseInput x = DenseInputOf(a, step, thread);
  const Share share = ShareOf(p.strips, 1, thread);
  DenseStrips(p, x, share.begin, share.end, a.y, DenseSumsOf(thread));
}

// The threads share the strips of all members laid end to end.
void DenseLinearGroup(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  int64_t total = 0;
  for (int32_t i = 0; i < a.count; ++i) total += DenseProductOf(a.linear[i]).strips;
  const DenseInput x = DenseInputOf(a.linear[0], step, thread);
  const Share share = ShareOf(total, 1, thread);
  int64_t first = 0;
  for (int32_t i = 0; i < a.count; ++i) {
    const DenseProduct p = DenseProductOf(a.linear[i]);
    const int64_t begin = share.begin > first ? share.begin - first : 0;
    const int64_t end = Least(share.end - first, p.strips);
    DenseStrips(p, x, begin, end, a.linear[i].y, DenseSumsOf(thread));
    first += p.strips;
  }
}

// Gate and up of some strips, then both combined while they are in cache.
void DenseGluLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const DenseProduct gate = DenseProductOf(a.gate);
  const DenseProduct up = DenseProductOf(a.up);
  const DenseInput x = DenseInputOf(a.gate, step, thread);
  float* gate_sums = DenseSumsOf(thread);
  float* up_sums = gate_sums + DenseSumFloats(x.rows);
  const Share share = ShareOf(gate.strips, 1, thread);
  for (int64_t s = share.begin; s < share.end; s += kDenseStrips) {
    const int64_t end = Least(s + kDenseStrips, share.end);
    DenseSums(gate, x, s, end, gate_sums);
    DenseSums(up, x, s, end, up_sums);
    const int64_t n = s * kStripRows;
    const int64_t count = Least(end * kStripRows, gate.n_out) - n;
    for (int64_t m = 0; m < x.rows; ++m) {
      float* gate_row = gate_sums + m * kDenseColumns;
      float* up_row = up_sums + m * kDenseColumns;
      AddDenseBias(gate, n, count, gate_row);
      AddDenseBias(up, n, count, up_row);
      GluRange(a.act, gate_row, up_row, a.y + m * gate.n_out + n, 0, count);
    }
  }
}

size_t DenseLinearScratch(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const LinearArgs*>(args);
  return static_cast<size_t>(2 * DenseSumFloats(max_rows)) * sizeof(float) +
         static_cast<size_t>(OwnPairBytes(a.w.shape[1]));
}
size_t DenseGroupScratch(const void* args, int64_t max_rows) {
  return DenseLinearScratch(&static_cast<const LinearGroupArgs*>(args)->linear[0], max_rows);
}
size_t DenseGluScratch(const void* args, int64_t max_rows) {
  return DenseLinearScratch(&static_cast<const GluLinearArgs*>(args)->gate, max_rows);
}

const char* RefuseDense(const LinearArgs& a) {
  if (a.packed == nullptr) return "wants packed weights";
  if (kDensePairs) {
    if (a.w.dtype != DType::kBF16) return "wants bfloat16 weights";
    return a.exact ? "rounds activations to bfloat16" : nullptr;
  }
  const bool plain =
      a.w.dtype == DType::kF32 || a.w.dtype == DType::kF16 || a.w.dtype == DType::kBF16;
  return plain ? nullptr : "wants weights of a plain type";
}
const char* RefuseDenseLinear(const void* args) {
  return RefuseDense(*static_cast<const LinearArgs*>(args));
}
const char* RefuseDenseGroup(const void* args) {
  const auto& a = *static_cast<const LinearGroupArgs*>(args);
  for (int32_t i = 0; i < a.count; ++i) {
    if (const char* reason = RefuseDense(a.linear[i])) return reason;
  }
  return nullptr;
}
const char* RefuseDenseGlu(const void* args) {
  const auto& a = *static_cast<const GluLinearArgs*>(args);
  const char* reason = RefuseDense(a.gate);
  return reason != nullptr ? reason : RefuseDense(a.up);
}

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `isa` is a string literal.
#define LUCID_DENSE_KERNELS(isa)                                                               \
  {KernelOp::kLinear, "dense_linear." isa, DenseLinear,       DenseLinearScratch,              \
   RefuseDenseLinear, DenseLinearShared,   PrepareDenseLinear},                                \
      {KernelOp::kLinearGroup, "dense_linear_group." isa, DenseLinearGroup, DenseGroupScratch, \
       RefuseDenseGroup,       DenseGroupShared,          PrepareDenseGroup},                  \
  {                                                                                            \
    KernelOp::kGluLinear, "dense_glu_linear." isa, DenseGluLinear, DenseGluScratch,            \
        RefuseDenseGlu, DenseGluShared, PrepareDenseGlu                                        \
  }
