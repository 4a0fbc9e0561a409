// BeamSearch: which hypotheses live on, given the likely next tokens of each. Pure bookkeeping: the
// engine computes the rows and forks the caches.
//
// The scheme of Hugging Face transformers' beam search without early stopping: of all continuations
// the 2 * width best by summed log-probability are looked at in order; those that end the text are
// finished if they are among the first `width`, the others live on until there are `width` of them.
// A hypothesis of n tokens (its end token included) scores sum / n^length_penalty. The search ends
// when there are `width` finished ones and no living one could still beat the worst of them, or at
// the length limit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "decode/sampler.h"

namespace lucid {

struct BeamHypothesis {
  std::vector<int32_t> tokens;
  std::vector<LogprobResult> logprobs;  // of the tokens; empty where nobody asked
  double logprob_sum = 0;
  double score = 0;
  bool ended = false;  // by an end token, which is its last; else by the length limit
};

class BeamSearch {
 public:
  // `is_end` tells whether a token ends a text.
  BeamSearch(int32_t width, double length_penalty, std::function<bool(int32_t)> is_end);

  struct Beam {
    std::span<const int32_t> tokens;          // of the reply so far
    std::span<const LogprobResult> logprobs;  // as many, or none
    double logprob_sum = 0;
    std::span<const TokenProb> candidates;  // the 2 * width most likely next tokens, best first
  };
  struct Next {
    int32_t parent = 0;  // index into the beams
    TokenProb token;
    double logprob_sum = 0;
  };
  // One round: the beams that live on, best first; empty when the search is over. `last`: the
  // length limit is reached with these tokens.
  std::vector<Next> Step(std::span<const Beam> beams, bool last);

  // The finished hypotheses, best first, at most `width`.
  std::span<const BeamHypothesis> finished() const { return finished_; }
  int32_t width() const { return width_; }

 private:
  void Finish(const Beam& beam, const TokenProb& token, double sum, bool ended);

  int32_t width_;
  double length_penalty_;
  std::function<bool(int32_t)> is_end_;
  std::vector<BeamHypothesis> finished_;
};

}  // namespace lucid
