#include "decode/samplers/select.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"

namespace lucid {
namespace {

// Below this many elements a sort is cheaper than another partition.
constexpr size_t kSortBelow = 64;
// Room beyond k in the buffer of KthLargestLogit: fewer, larger clean-ups.
constexpr size_t kMinSlack = 256;

double SumWeights(std::span<const Ranked> ranked) {
  double sum = 0;
  for (const Ranked& r : ranked) sum += r.weight;
  return sum;
}

// The k-th largest of `n` numbers at(0) ... at(n - 1).
template <typename At>
float KthLargestOf(size_t n, size_t k, const At& at) {
  LUCID_CHECK(k >= 1 && k <= n, "k={} of {}", k, n);
  std::vector<float> kept;
  const size_t capacity = k + std::max(k, kMinSlack);
  kept.reserve(std::min(capacity, n));
  const auto keep_k_largest = [&] {
    std::nth_element(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(k - 1), kept.end(),
                     std::greater<>());
    kept.resize(k);
    return kept[k - 1];
  };
  float bar = -INFINITY;
  for (size_t i = 0; i < n; ++i) {
    const float x = at(i);
    if (x <= bar && kept.size() >= k) continue;  // cannot change the k-th largest
    kept.push_back(x);
    if (kept.size() == capacity) bar = keep_k_largest();
  }
  return keep_k_largest();
}

}  // namespace

float MaxLogit(std::span<const Candidate> candidates) {
  LUCID_CHECK(!candidates.empty());
  float best = candidates[0].logit;
  for (const Candidate& c : candidates) best = std::max(best, c.logit);
  return best;
}

float KthLargestLogit(std::span<const Candidate> candidates, size_t k) {
  return KthLargestOf(candidates.size(), k, [&](size_t i) { return candidates[i].logit; });
}

float KthLargest(std::span<const float> numbers, size_t k) {
  return KthLargestOf(numbers.size(), k, [&](size_t i) { return numbers[i]; });
}

Weights SoftmaxWeights(std::span<const Candidate> candidates) {
  Weights weights;
  weights.max_logit = MaxLogit(candidates);
  weights.values.reserve(candidates.size());
  const double max = weights.max_logit;
  for (const Candidate& c : candidates) {
    weights.values.push_back(std::exp(c.logit - max));
    weights.sum += weights.values.back();
  }
  return weights;
}

size_t PartitionByMass(std::span<Ranked> ranked, double target, size_t min_keep) {
  size_t low = 0;  // ranked[0, low) is certainly kept; ranked[high, end) certainly not
  size_t high = ranked.size();
  double mass = 0;
  min_keep = std::min(min_keep, ranked.size());
  while (high - low > kSortBelow) {
    const size_t middle = low + (high - low) / 2;
    const auto at = [&](size_t i) { return ranked.begin() + static_cast<ptrdiff_t>(i); };
    std::nth_element(at(low), at(middle), at(high), ComesFirst);
    const double half = SumWeights(ranked.subspan(low, middle - low));
    if (mass + half >= target && middle >= min_keep) {
      high = middle;
    } else {
      mass += half;
      low = middle;
    }
  }
  const auto rest = ranked.subspan(low, high - low);
  std::sort(rest.begin(), rest.end(), ComesFirst);
  size_t n = low;
  while (n < high && (n < min_keep || mass < target)) mass += ranked[n++].weight;
  return n;
}

}  // namespace lucid
