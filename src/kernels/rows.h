// Row kernels: passes over one row of logits for the samplers, per instruction set.
//
// They are no ops of a plan: they run on one thread, over a row cut into blocks of kRowBlock.
// BestRowKernels() is what a caller without a choice takes; decode/samplers/logit_row.h is the only
// user. Sums differ in their last bits between `generic` and the others; whoever decides by them
// must know kWeightError.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/table.h"

namespace lucid {

constexpr int64_t kRowBlock = 64;

// exp(y) of which y: x - max, or (x - max) / temperature rounded to float, as the stage
// "temperature" leaves it.
struct RowScale {
  float max = 0;  // finite, and no x is larger
  bool tempered = false;
  float temperature = 1;  // above 0
};

// A sum of weights is off by at most this part of itself.
constexpr double kWeightError = 1e-10;

struct RowKernels {
  std::string_view isa;
  // maxima[b]: the largest of the 64 numbers of block b, NaN left out; -inf if all are NaN. Returns
  // the largest of them.
  float (*maxima)(const float* x, int64_t n_blocks, float* maxima);
  // Bit i: x[i] >= limit, of one block.
  uint64_t (*at_least)(const float* x, float limit);
  // sums[b]: the sum of exp(y) over block b, in double; about e^-700 for each -inf and NaN.
  void (*weights)(const float* x, int64_t n_blocks, const RowScale& scale, double* sums);
};

// Those of the best of these tables that has some; `tables` as SelectTables returns them.
const RowKernels& RowKernelsOf(std::span<const KernelTable* const> tables);
// The best that this CPU can run.
const RowKernels& BestRowKernels();

}  // namespace lucid
