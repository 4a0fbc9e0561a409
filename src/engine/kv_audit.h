// KvAuditor: what a bounded cache costs in quality, measured while the reply is made.
//
// A shadow sequence reads the same tokens with the full cache. Whenever both have the logits of a
// position, the divergence of the two distributions is added up; the faster one waits.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"

namespace lucid {

class KvAuditor {
 public:
  // The row [vocab] of the next position of either sequence. True if the other's was there
  // already, so that both may go on.
  bool AddBounded(std::span<const float> logits) { return Add(logits, bounded_, full_); }
  bool AddFull(std::span<const float> logits) { return Add(logits, full_, bounded_); }
  bool waiting() const { return !bounded_.empty() || !full_.empty(); }

  KvAudit result() const;

 private:
  bool Add(std::span<const float> logits, std::vector<float>& mine, std::vector<float>& other);

  std::vector<float> bounded_, full_;  // the row that waits for its counterpart
  KvAudit sums_;                       // mean_kl holds the sum
};

// KL(p || q) in nats of the softmax distributions of two rows of logits.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace lucid
