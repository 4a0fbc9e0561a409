#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>

namespace lucid {

void RunningMean::Add(double x) {
  ++count_;
  const double delta = x - mean_;
  mean_ += delta / static_cast<double>(count_);
  squares_ += delta * (x - mean_);
}

double RunningMean::stderr_of_mean() const {
  if (count_ < 2) return 0;
  const auto n = static_cast<double>(count_);
  return std::sqrt(squares_ / n / (n - 1));
}

std::vector<float> BaseComparison::sorted_kld() const {
  std::vector<float> sorted = klds;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

PerplexityMeter::PerplexityMeter(const Tokenizer& tokenizer, DistributionReader* base,
                                 DistributionWriter* save)
    : tokenizer_(tokenizer), base_(base), save_(save) {
  if (base != nullptr) comparison_.emplace();
}

Status PerplexityMeter::Add(const ScoredRow& row) {
  row_.Reset(row.logits, BestRowKernels());
  const float logit = row.logits[static_cast<size_t>(row.token)];
  if (!row_.CanWeigh() || !std::isfinite(logit)) {
    return Err(ErrorCode::kInvalidArgument,
               "the logits before token {} of the text are not finite: there is no perplexity",
               row.position);
  }
  const double log_sum = row_.LogSum();
  const double log_p = static_cast<double>(logit) - log_sum;
  nll_.Add(-log_p);
  bytes_ += std::ssize(tokenizer_.PieceBytes(row.token));
  if (save_ != nullptr) LUCID_RETURN_IF_ERROR(save_->Add(row.logits, log_sum, row.token));
  if (base_ != nullptr) return Compare(row, log_sum, log_p);
  return {};
}

Status PerplexityMeter::Compare(const ScoredRow& row, double log_sum, double log_p) {
  LUCID_ASSIGN_OR_RETURN(const SavedRow base, base_->Next());
  BaseComparison& c = *comparison_;
  double kld = 0;
  size_t base_top = 0;
  for (size_t i = 0; i < base.levels.size(); ++i) {
    if (base.levels[i] > base.levels[base_top]) base_top = i;
    if (base.levels[i] == 0) continue;  // less than e^-16 of the largest
    const double base_log_p = base.LogProb(i);
    kld += std::exp(base_log_p) * (base_log_p - (static_cast<double>(row.logits[i]) - log_sum));
  }
  kld = std::max(kld, 0.0);
  c.kld.Add(kld);
  c.klds.push_back(static_cast<float>(kld));
  const auto top = static_cast<size_t>(std::max_element(row.logits.begin(), row.logits.end()) -
                                       row.logits.begin());
  c.same_top1.Add(top == base_top ? 1 : 0);
  c.base_nll.Add(-base.token_log_prob);
  c.log_ratio.Add(base.token_log_prob - log_p);
  const double delta = std::exp(log_p) - std::exp(base.token_log_prob);
  c.delta_p.Add(delta);
  c.delta_p2.Add(delta * delta);
  return {};
}

double PerplexityMeter::perplexity() const {
  return std::exp(nll_.mean());
}
double PerplexityMeter::perplexity_stderr() const {
  return perplexity() * nll_.stderr_of_mean();
}
double PerplexityMeter::bits_per_byte() const {
  if (bytes_ == 0) return 0;
  return nll_.mean() * static_cast<double>(nll_.count()) / std::log(2.0) /
         static_cast<double>(bytes_);
}

}  // namespace lucid
