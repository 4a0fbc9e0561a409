// Selection without a full sort: what the filters of this folder share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/samplers/stage.h"

namespace lucid {

// The largest logit; candidates must not be empty.
float MaxLogit(std::span<const Candidate> candidates);

// The k-th largest logit, 1 <= k <= size. One pass with a bounded buffer: for k far below the size
// nearly every candidate costs one comparison.
float KthLargestLogit(std::span<const Candidate> candidates, size_t k);
float KthLargest(std::span<const float> numbers, size_t k);  // the same of plain numbers, no NaN

// exp(logit - max) for each candidate, in double, and their sum (>= 1).
struct Weights {
  std::vector<double> values;
  double sum = 0;
  float max_logit = 0;
};
Weights SoftmaxWeights(std::span<const Candidate> candidates);

struct Ranked {
  double key;     // larger is taken first; equal keys by lower index
  double weight;  // >= 0
  uint32_t index;
};

// Reorders `ranked` so that its first n elements are the shortest prefix, by descending key, whose
// weights reach `target`; n >= min(min_keep, size). Returns n; everything if the target is never
// reached. Expected linear time (a quickselect on mass).
size_t PartitionByMass(std::span<Ranked> ranked, double target, size_t min_keep);

// True if `a` is taken before `b`.
inline bool ComesFirst(const Ranked& a, const Ranked& b) {
  return a.key != b.key ? a.key > b.key : a.index < b.index;
}

}  // namespace lucid
