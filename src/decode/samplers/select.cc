#include "decode/samplers/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"

namespace lucid {
namespace {

// Below this many elements a sort is cheaper than another partition.
constexpr size_t kSortBelow = 64;
// Above this many, bins are cheaper than partitions.
constexpr size_t kBinsAbove = 512;
// Room beyond k in the buffer of KthLargestLogit: fewer, larger clean-ups.
constexpr size_t kMinSlack = 256;

double SumWeights(std::span<const Ranked> ranked) {
  double sum = 0;
  for (const Ranked& r : ranked) sum += r.weight;
  return sum;
}

// The same order as integers: larger for a larger number.
uint64_t OrderOf(double x) {
  const auto bits = std::bit_cast<uint64_t>(x + 0.0);  // 0 for -0
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}

struct MassRange {
  size_t begin, end;
  double mass;  // of all before begin
};

// Reorders `ranked` so that the boundary PartitionByMass looks for lies in the range returned, all
// before it come first and all behind it do not: by bins of the keys, which for exponentials are
// as fine at small ones as at large ones.
MassRange NarrowByBins(std::span<Ranked> ranked, double target, size_t min_keep) {
  constexpr size_t kBins = 1024;
  uint64_t most = 0, least = ~uint64_t{0};
  for (const Ranked& r : ranked) {
    most = std::max(most, OrderOf(r.key));
    least = std::min(least, OrderOf(r.key));
  }
  const int shift = std::max(0, static_cast<int>(std::bit_width(most - least)) - 10);
  const auto bin_of = [&](const Ranked& r) { return (most - OrderOf(r.key)) >> shift; };
  std::array<double, kBins> masses{};
  std::array<size_t, kBins> counts{};
  for (const Ranked& r : ranked) {
    masses[bin_of(r)] += r.weight;
    ++counts[bin_of(r)];
  }
  MassRange range{0, 0, 0};
  size_t bin = 0;
  for (;; ++bin) {
    range.end = range.begin + counts[bin];
    if (bin + 1 == kBins || (range.mass + masses[bin] >= target && range.end >= min_keep)) break;
    range.begin = range.end;
    range.mass += masses[bin];
  }
  const auto middle = std::partition(ranked.begin(), ranked.end(),
                                     [&](const Ranked& r) { return bin_of(r) < bin; });
  std::partition(middle, ranked.end(), [&](const Ranked& r) { return bin_of(r) == bin; });
  return range;
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
  min_keep = std::min(min_keep, ranked.size());
  // ranked[0, low) is certainly kept; ranked[high, end) certainly not.
  auto [low, high, mass] = ranked.size() > kBinsAbove ? NarrowByBins(ranked, target, min_keep)
                                                      : MassRange{0, ranked.size(), 0.0};
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
