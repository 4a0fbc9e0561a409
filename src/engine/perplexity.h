// Perplexity of a text, and how far a model's distributions are from those of another.
//
//   PPL = exp(mean of -log p(token)), its error that of the mean: PPL * sd / sqrt(n)
//
// Against a saved base: KL(base || model) in nats, whether both think the same token most likely,
// and the difference of the tokens' log-probabilities, whose error is far smaller than that of
// either mean since both have read the same text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/samplers/logit_row.h"
#include "engine/distribution_file.h"
#include "engine/text_scorer.h"

namespace lucid {

// Mean of numbers that come one by one, and the standard error of that mean.
class RunningMean {
 public:
  void Add(double x);
  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double stderr_of_mean() const;  // 0 with fewer than two

 private:
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;  // Welford, 1962
};

struct BaseComparison {
  RunningMean kld;        // of each token
  RunningMean same_top1;  // 1 or 0
  RunningMean base_nll;   // -log p of the base
  RunningMean log_ratio;  // -log p of the model - -log p of the base: mean = ln(PPL / base PPL)
  RunningMean delta_p;    // p of the model - p of the base
  RunningMean delta_p2;   // its square
  std::vector<float> sorted_kld() const;
  std::vector<float> klds;  // one a token
};

class PerplexityMeter {
 public:
  // `base`: compare with it; `save`: write every row there. Either may be null.
  PerplexityMeter(const Tokenizer& tokenizer, DistributionReader* base, DistributionWriter* save);

  // kInvalidArgument if a row is not finite (naming the position) or is not the base's next one.
  Status Add(const ScoredRow& row);

  int64_t tokens() const { return nll_.count(); }
  double perplexity() const;
  double perplexity_stderr() const;
  double cross_entropy() const { return nll_.mean(); }  // nats a token
  double bits_per_byte() const;                         // of the scored tokens' text
  const std::optional<BaseComparison>& comparison() const { return comparison_; }

 private:
  Status Compare(const ScoredRow& row, double log_sum, double log_p);

  const Tokenizer& tokenizer_;
  DistributionReader* base_;
  DistributionWriter* save_;
  LogitRow row_;
  RunningMean nll_;
  int64_t bytes_ = 0;
  std::optional<BaseComparison> comparison_;
};

}  // namespace lucid
