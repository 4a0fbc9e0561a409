// LogitRow: the logits of all tokens before a stage has removed any, for the stages at the front of
// a chain.
//
// A list of 150,000 candidates takes longer to write than to search. The row stays where it is; a
// few adjusted tokens lie over it in copies of their blocks, and the largest logit of each block
// tells which blocks a selection must look into. sampler.cc makes one per thread; stage.h says
// which stages use it.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/samplers/stage.h"

namespace lucid {

class LogitRow {
 public:
  // Begins with other logits, which must outlive their use. +inf counts as the largest finite
  // number; -inf and NaN are no candidates.
  void Reset(std::span<const float> logits);

  size_t size() const { return logits_.size(); }
  size_t n_blocks() const { return patch_of_block_.size(); }

  // The logit of `id`, to be changed; nullptr if it is no candidate or no token. Holds until the
  // next Find. Not after one of the functions below.
  float* Find(int32_t id);

  // The largest logit; -inf if there is no candidate.
  float Max();
  // The first candidate with the largest logit; there must be one.
  Candidate Best();
  // Fills `out` with the candidates whose logit is `limit` or more, ascending by id.
  void AtLeast(double limit, Candidates& out);
  // The k largest and those equal to the last of them, ascending by id; all where there are not
  // more than k. Fast for k far below n_blocks().
  void Largest(size_t k, Candidates& out);
  // Calls visit(candidate) for all of them, ascending by id.
  template <typename Visit>
  void ForEach(const Visit& visit) const;

  // Sum of exp(logit - Max()) over the candidates below `limit`, in float: off by at most
  // kTailError of itself, and 1e-10. |Max()| <= kMaxForTail.
  double TailWeight(float limit);
  static constexpr double kTailError = 5e-6;
  static constexpr float kMaxForTail = 1e6f;
  // A limit at and above which the candidates' sum of exp(logit - Max()) is about `weight`; a
  // guess, good to a percent.
  float LimitOfWeight(double weight);

 private:
  static constexpr size_t kBlock = 64;
  using Block = std::array<float, kBlock>;

  const float* BlockAt(size_t block) const {
    const int32_t patch = patch_of_block_[block];
    return patch < 0 ? &logits_[block * kBlock] : patches_[static_cast<size_t>(patch)].data();
  }
  Block& Patch(size_t block);
  void FindMaxima();

  std::span<const float> logits_;
  std::vector<int32_t> patch_of_block_;  // -1: the block lies in logits_
  std::vector<Block> patches_;
  std::vector<float> maxima_;  // of each block; empty until they are needed
  float max_ = 0;
};

template <typename Visit>
void LogitRow::ForEach(const Visit& visit) const {
  for (size_t block = 0; block < n_blocks(); ++block) {
    const float* x = BlockAt(block);
    for (size_t i = 0; i < kBlock; ++i) {
      if (x[i] > -INFINITY)
        visit(Candidate{static_cast<int32_t>(block * kBlock + i), std::min(x[i], FLT_MAX)});
    }
  }
}

}  // namespace lucid
