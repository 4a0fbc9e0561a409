#include "engine/kv_audit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lucid {
namespace {

// log of the sum of exp(logits), in double, shifted by the maximum.
double LogSumExp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum);
}

}  // namespace

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  LUCID_CHECK(p_logits.size() == q_logits.size(), "rows of {} and {}", p_logits.size(),
              q_logits.size());
  const double p_norm = LogSumExp(p_logits);
  const double q_norm = LogSumExp(q_logits);
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_norm;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - (static_cast<double>(q_logits[i]) - q_norm));
  }
  return std::max(sum, 0.0);  // rounding can give a last bit below zero
}

bool KvAuditor::Add(std::span<const float> logits, std::vector<float>& mine,
                    std::vector<float>& other) {
  LUCID_CHECK(mine.empty(), "a row came before its counterpart of the position before");
  if (other.empty()) {
    mine.assign(logits.begin(), logits.end());
    return false;
  }
  const bool mine_is_full = &mine == &full_;
  const std::span<const float> full = mine_is_full ? logits : std::span<const float>(full_);
  const std::span<const float> bounded = mine_is_full ? std::span<const float>(bounded_) : logits;
  const double kl = KlDivergence(full, bounded);
  ++sums_.positions;
  sums_.mean_kl += kl;
  sums_.max_kl = std::max(sums_.max_kl, kl);
  const auto top = [](std::span<const float> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  if (top(full) == top(bounded)) ++sums_.same_top1;
  other.clear();
  return true;
}

KvAudit KvAuditor::result() const {
  KvAudit audit = sums_;
  if (audit.positions > 0) audit.mean_kl /= static_cast<double>(audit.positions);
  return audit;
}

}  // namespace lucid
