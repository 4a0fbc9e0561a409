// LogitRow: the logits of all tokens before a stage has removed any, for the stages at the front of
// a chain.
//
// A list of 150,000 candidates takes longer to write than to search. The row stays where it is; a
// few adjusted tokens lie over it in copies of their blocks, and the largest logit of each block
// tells which blocks a selection must look into. sampler.cc makes one per thread; stage.h says
// which stages use it.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/samplers/stage.h"
#include "kernels/rows.h"

namespace lucid {

class LogitRow {
 public:
  // Begins with other logits, which must outlive their use. +inf counts as the largest finite
  // number; -inf and NaN are no candidates.
  void Reset(std::span<const float> logits, const RowKernels& kernels);

  size_t size() const { return logits_.size(); }
  size_t n_blocks() const { return is_patched_.size(); }

  // The logit of `id`, to be changed; nullptr if it is no candidate or no token. Holds until the
  // next Find. Only while nothing has been searched.
  float* Find(int32_t id);
  bool searched() const { return !maxima_.empty(); }

  // From now on each logit is (logit - Max()) / temperature, rounded to float; once at most.
  void Temper(float temperature);

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

  // Whether the functions below may be called: there are candidates, and none stands for +inf.
  bool CanWeigh();
  // The sum of exp(logit - Max()) over all candidates, off by at most kError of itself, which
  // covers the order in which others add the same weights too.
  double Weight();
  static constexpr double kError = 1e-9;
  // log of the sum of exp(logit): what a logit exceeds its log-probability by.
  double LogSum() { return Max() + std::log(Weight()); }
  // The first candidate at which the sum of exp(logit - Max()) exceeds u times that of all;
  // nothing where kError leaves a doubt which one that is.
  std::optional<Candidate> Draw(double u);
  // A limit below `below` such that the candidates from it up to `below` have about this weight
  // together; a guess, from every `stride`-th block.
  float LimitOfWeight(double weight, float below, size_t stride);

 private:
  static constexpr size_t kBlock = kRowBlock;

  const float* BlockAt(size_t block) const {
    return (is_patched_[block] != 0 ? patched_.data() : logits_.data()) + block * kBlock;
  }
  // The logit that a number of the row stands for.
  float LogitOf(float x) const {
    x = std::min(x, FLT_MAX);
    if (!scale_.tempered) return x;
    return static_cast<float>((static_cast<double>(x) - scale_.max) / scale_.temperature);
  }
  float SmallestWith(double limit) const;
  float* Patch(size_t block);
  // Calls visit(x, first, n) for runs of blocks that lie end to end from x.
  template <typename Visit>
  void ForRuns(const Visit& visit) const;
  void FindMaxima();
  void FindWeights();

  std::span<const float> logits_;
  const RowKernels* kernels_ = nullptr;
  std::vector<uint8_t> is_patched_;  // 1: the block lies in patched_, not in logits_
  std::vector<float> patched_;       // as long as the row; its other blocks hold anything
  RowScale scale_;
  std::vector<float> maxima_;  // largest logit of each block; empty until they are needed
  float max_ = 0;
  std::vector<double> weights_;  // of each block; empty until they are needed
  double weight_ = 0;
};

template <typename Visit>
void LogitRow::ForEach(const Visit& visit) const {
  for (size_t block = 0; block < n_blocks(); ++block) {
    const float* x = BlockAt(block);
    for (size_t i = 0; i < kBlock; ++i) {
      if (x[i] > -INFINITY)
        visit(Candidate{static_cast<int32_t>(block * kBlock + i), LogitOf(x[i])});
    }
  }
}

}  // namespace lucid
