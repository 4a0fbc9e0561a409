#include "decode/samplers/logit_row.h"

#include <bit>
#include <cmath>

#include "base/check.h"
#include "decode/samplers/select.h"

namespace lucid {
namespace {

// The loops below keep four sums or maxima side by side, so that the compiler can use vectors
// without reordering anything.
constexpr size_t kLanes = 4;

float Larger(float x, float most) {
  return x > most ? x : most;  // `most` where x is NaN
}

// The largest of 64 numbers, NaN left out.
float LargestOf(const float* x) {
  std::array<float, kLanes> most;
  for (size_t j = 0; j < kLanes; ++j) {
    float a = -INFINITY, b = -INFINITY, c = -INFINITY, d = -INFINITY;
    for (size_t i = j; i < 64; i += 16) {
      a = Larger(x[i], a);
      b = Larger(x[i + 4], b);
      c = Larger(x[i + 8], c);
      d = Larger(x[i + 12], d);
    }
    most[j] = Larger(Larger(a, b), Larger(c, d));
  }
  return Larger(Larger(most[0], most[1]), Larger(most[2], most[3]));
}

// exp(y) for -87 <= y <= 0 as 2^(n + f) with n whole, |f| <= 1/2 and the Taylor polynomial of 2^f.
// Off by less than 2e-6 of itself for y >= -30; below, a vocabulary's sum is nothing.
float RoughExp(float y) {
  const float t = y * 1.44269504f;
  const float shifted = t + 12582912.0f;  // 1.5 * 2^23: the last bits of the sum are round(t)
  const float f = t - (shifted - 12582912.0f);
  const uint32_t n = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(12582912.0f);
  float power = 1.54035304e-4f;  // ln(2)^6 / 6!
  power = power * f + 1.33335581e-3f;
  power = power * f + 9.61812911e-3f;
  power = power * f + 5.55041087e-2f;
  power = power * f + 2.40226507e-1f;
  power = power * f + 6.93147181e-1f;
  power = power * f + 1.0f;
  return power * std::bit_cast<float>((n + 127) << 23);
}

// Sum of exp(x - max) over those of 64 numbers that are below `limit`; `floor` is max - 87. The
// bounds of x are operands, as constant ones make the compiler split the loop by cases.
float WeightBelow(const float* x, float max, float floor, float limit) {
  std::array<float, kLanes> sums;
  for (size_t j = 0; j < kLanes; ++j) {
    float sum = 0;
    for (size_t i = 0; i < 64; i += kLanes) {
      const float logit = x[i + j];
      float y = Larger(logit, floor);
      y = y < max ? y : max;
      const float below = logit < limit ? 1.0f : 0.0f;
      sum += below * RoughExp(y - max);
    }
    sums[j] = sum;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

void LogitRow::Reset(std::span<const float> logits) {
  logits_ = logits;
  patch_of_block_.assign((logits.size() + kBlock - 1) / kBlock, -1);
  patches_.clear();
  maxima_.clear();
  // So that every block has its full length.
  if (logits.size() % kBlock != 0) Patch(n_blocks() - 1);
}

LogitRow::Block& LogitRow::Patch(size_t block) {
  int32_t& patch = patch_of_block_[block];
  if (patch < 0) {
    patch = static_cast<int32_t>(patches_.size());
    Block& copy = patches_.emplace_back();
    const auto from = logits_.subspan(block * kBlock);
    const auto end = std::copy_n(from.begin(), std::min(kBlock, from.size()), copy.begin());
    std::fill(end, copy.end(), -INFINITY);
  }
  return patches_[static_cast<size_t>(patch)];
}

float* LogitRow::Find(int32_t id) {
  LUCID_CHECK(maxima_.empty(), "a logit is changed after a search");
  if (id < 0 || static_cast<size_t>(id) >= logits_.size()) return nullptr;
  float& logit = Patch(static_cast<size_t>(id) / kBlock)[static_cast<size_t>(id) % kBlock];
  if (!(logit > -INFINITY)) return nullptr;
  logit = std::min(logit, FLT_MAX);
  return &logit;
}

void LogitRow::FindMaxima() {
  if (!maxima_.empty()) return;
  max_ = -INFINITY;
  maxima_.resize(n_blocks());
  for (size_t block = 0; block < n_blocks(); ++block) {
    maxima_[block] = std::min(LargestOf(BlockAt(block)), FLT_MAX);
    max_ = std::max(max_, maxima_[block]);
  }
}

float LogitRow::Max() {
  FindMaxima();
  return max_;
}

Candidate LogitRow::Best() {
  const float max = Max();
  LUCID_CHECK(max > -INFINITY, "no candidate");
  const auto block =
      static_cast<size_t>(std::find(maxima_.begin(), maxima_.end(), max) - maxima_.begin());
  const float* x = BlockAt(block);
  const float* best = std::find_if(x, x + kBlock, [max](float logit) { return logit >= max; });
  return {static_cast<int32_t>(block * kBlock) + static_cast<int32_t>(best - x), max};
}

void LogitRow::AtLeast(double limit, Candidates& out) {
  FindMaxima();
  out.clear();
  for (size_t block = 0; block < n_blocks(); ++block) {
    if (maxima_[block] < limit) continue;
    const float* x = BlockAt(block);
    for (size_t i = 0; i < kBlock; ++i) {
      if (x[i] >= limit && x[i] > -INFINITY)
        out.push_back({static_cast<int32_t>(block * kBlock + i), std::min(x[i], FLT_MAX)});
    }
  }
}

// At least k candidates are as large as the k-th largest maximum of a block.
void LogitRow::Largest(size_t k, Candidates& out) {
  FindMaxima();
  AtLeast(k > 0 && k <= n_blocks() ? KthLargest(maxima_, k) : -INFINITY, out);
  if (k >= out.size()) return;
  const float limit = KthLargestLogit(out, k);
  std::erase_if(out, [limit](const Candidate& c) { return c.logit < limit; });
}

double LogitRow::TailWeight(float limit) {
  const float max = Max();
  LUCID_CHECK(std::abs(max) <= kMaxForTail);
  double sum = 0;
  for (size_t block = 0; block < n_blocks(); ++block)
    sum += WeightBelow(BlockAt(block), max, max - 87.0f, limit);
  return sum;
}

float LogitRow::LimitOfWeight(double weight) {
  // Candidates by their distance from the largest logit.
  constexpr size_t kSteps = 1024;
  constexpr float kPerUnit = 32;
  std::array<uint32_t, kSteps> counts{};
  const float max = Max();
  for (size_t block = 0; block < n_blocks(); ++block) {
    const float* x = BlockAt(block);
    for (size_t i = 0; i < kBlock; ++i) {
      const float step = (max - x[i]) * kPerUnit;
      if (step < kSteps) ++counts[step > 0 ? static_cast<size_t>(step) : 0];
    }
  }
  double sum = 0;
  size_t step = 0;
  for (; step < kSteps && sum < weight; ++step)
    sum += counts[step] * std::exp(-(static_cast<double>(step) + 0.5) / kPerUnit);
  return max - static_cast<float>(step) / kPerUnit;
}

}  // namespace lucid
