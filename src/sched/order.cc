#include "sched/order.h"

#include <algorithm>
#include <limits>

namespace lucid {

Ranking::Ranking(std::span<const Sequence* const> sequences, int64_t step, int64_t aging_steps,
                 const std::map<std::string, int64_t>* served)
    : step_(step), aging_steps_(std::max<int64_t>(1, aging_steps)), served_(served) {
  top_ = std::numeric_limits<int32_t>::min();
  for (const Sequence* sequence : sequences) {
    top_ = std::max<int64_t>(top_, sequence->spec.priority);
  }
}

Rank Ranking::Of(const Sequence& sequence) const {
  const int64_t age = (step_ - sequence.waiting_since) / aging_steps_;
  Rank rank;
  rank.id = sequence.id;
  if (age >= kPatience) {
    rank.level = std::numeric_limits<int64_t>::max();
    return rank;
  }
  rank.level = std::min(sequence.spec.priority + age, top_);
  if (served_ != nullptr && served_->size() > 1) {
    const auto found = served_->find(sequence.spec.client);
    if (found != served_->end()) rank.served = found->second;
  }
  return rank;
}

}  // namespace lucid
