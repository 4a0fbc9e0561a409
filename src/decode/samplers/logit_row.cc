#include "decode/samplers/logit_row.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "decode/samplers/select.h"

namespace lucid {
void LogitRow::Reset(std::span<const float> logits, const RowKernels& kernels) {
  logits_ = logits;
  kernels_ = &kernels;
  is_patched_.assign((logits.size() + kBlock - 1) / kBlock, 0);
  maxima_.clear();
  weights_.clear();
  scale_ = {};
  // So that every block has its full length.
  if (logits.size() % kBlock != 0) Patch(n_blocks() - 1);
}

float* LogitRow::Patch(size_t block) {
  if (is_patched_[block] == 0) {
    is_patched_[block] = 1;
    if (patched_.size() < n_blocks() * kBlock) patched_.resize(n_blocks() * kBlock);
    const auto from = logits_.subspan(block * kBlock);
    const auto to = patched_.begin() + static_cast<ptrdiff_t>(block * kBlock);
    const auto end = std::copy_n(from.begin(), std::min(kBlock, from.size()), to);
    std::fill(end, to + kBlock, -INFINITY);
  }
  return &patched_[block * kBlock];
}

float* LogitRow::Find(int32_t id) {
  LUCID_CHECK(!searched(), "a logit is changed after a search");
  if (id < 0 || static_cast<size_t>(id) >= logits_.size()) return nullptr;
  float& logit = Patch(static_cast<size_t>(id) / kBlock)[static_cast<size_t>(id) % kBlock];
  if (!(logit > -INFINITY)) return nullptr;
  logit = std::min(logit, FLT_MAX);
  return &logit;
}

template <typename Visit>
void LogitRow::ForRuns(const Visit& visit) const {
  for (size_t first = 0; first < n_blocks();) {
    const float* x = BlockAt(first);
    size_t end = first + 1;
    while (end < n_blocks() && is_patched_[end] == is_patched_[first]) ++end;
    visit(x, first, static_cast<int64_t>(end - first));
    first = end;
  }
}

void LogitRow::FindMaxima() {
  if (searched()) return;
  maxima_.resize(n_blocks());
  max_ = -INFINITY;
  ForRuns([this](const float* x, size_t first, int64_t n) {
    max_ = std::max(max_, kernels_->maxima(x, n, &maxima_[first]));
  });
  if (max_ < INFINITY) return;
  for (float& most : maxima_) most = std::min(most, FLT_MAX);
  max_ = FLT_MAX;
}

void LogitRow::Temper(float temperature) {
  LUCID_CHECK(!scale_.tempered);
  FindMaxima();
  if (max_ == -INFINITY) return;
  scale_ = {.max = max_, .tempered = true, .temperature = temperature};
  for (float& most : maxima_) most = LogitOf(most);
  max_ = 0;
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
  const float* best = std::find_if(x, x + kBlock, [&](float y) { return LogitOf(y) >= max; });
  return {static_cast<int32_t>(block * kBlock) + static_cast<int32_t>(best - x), max};
}

void LogitRow::AtLeast(double limit, Candidates& out) {
  FindMaxima();
  out.clear();
  const float x_limit = SmallestWith(limit);
  for (size_t block = 0; block < n_blocks(); ++block) {
    if (maxima_[block] < limit) continue;
    const float* x = BlockAt(block);
    for (uint64_t bits = kernels_->at_least(x, x_limit); bits != 0; bits &= bits - 1) {
      const auto i = static_cast<size_t>(std::countr_zero(bits));
      const float logit = LogitOf(x[i]);
      if (logit >= limit) out.push_back({static_cast<int32_t>(block * kBlock + i), logit});
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

// Not above any number of the row whose logit is `limit` or more, and above -inf.
float LogitRow::SmallestWith(double limit) const {
  double x = limit;
  if (scale_.tempered) {
    x = limit * scale_.temperature + scale_.max;
    // More than LogitOf rounds off, be its result subnormal, and this line.
    x -= 1e-6 * (std::abs(limit) * scale_.temperature + std::abs(scale_.max)) +
         1e-44 * scale_.temperature;
  }
  if (!(x > -FLT_MAX)) return -FLT_MAX;
  return std::nextafter(static_cast<float>(std::min<double>(x, FLT_MAX)), -FLT_MAX);
}

bool LogitRow::CanWeigh() {
  FindMaxima();
  const float max = scale_.tempered ? scale_.max : max_;
  return max > -INFINITY && max < FLT_MAX;
}

void LogitRow::FindWeights() {
  LUCID_CHECK(CanWeigh());
  if (!weights_.empty()) return;
  weights_.resize(n_blocks());
  if (!scale_.tempered) scale_.max = max_;
  ForRuns([this](const float* x, size_t first, int64_t n) {
    kernels_->weights(x, n, scale_, &weights_[first]);
  });
  weight_ = 0;
  for (const double weight : weights_) weight_ += weight;
}

double LogitRow::Weight() {
  FindWeights();
  return weight_;
}

std::optional<Candidate> LogitRow::Draw(double u) {
  FindWeights();
  const double doubt = kError * weight_;
  const double target = u * weight_;
  double sum = 0;
  size_t block = 0;
  while (block < n_blocks() && sum + weights_[block] <= target) sum += weights_[block++];
  if (block == n_blocks()) return std::nullopt;
  const float* x = BlockAt(block);
  for (size_t i = 0; i < kBlock; ++i) {
    if (!(x[i] > -INFINITY)) continue;
    const double before = sum;
    sum += std::exp(LogitOf(x[i]) - static_cast<double>(max_));
    if (sum <= target) continue;
    const bool none_earlier = before == 0 || before < target - doubt;
    if (!none_earlier || sum <= target + doubt) return std::nullopt;
    return Candidate{static_cast<int32_t>(block * kBlock + i), LogitOf(x[i])};
  }
  return std::nullopt;
}

float LogitRow::LimitOfWeight(double weight, float below, size_t stride) {
  // Candidates by their distance from `below`.
  constexpr size_t kSteps = 1024;
  constexpr float kPerUnit = 32;
  std::array<uint32_t, kSteps> counts{};
  for (size_t block = stride / 2; block < n_blocks(); block += stride) {
    const float* x = BlockAt(block);
    for (size_t i = 0; i < kBlock; ++i) {
      const float step = (below - LogitOf(x[i])) * kPerUnit;
      if (step > 0 && step < kSteps) ++counts[static_cast<size_t>(step)];
    }
  }
  const double first = std::exp(static_cast<double>(below) - Max()) * static_cast<double>(stride);
  double sum = 0;
  size_t step = 0;
  for (; step < kSteps && sum < weight; ++step)
    sum += counts[step] * first * std::exp(-(static_cast<double>(step) + 0.5) / kPerUnit);
  return below - static_cast<float>(step) / kPerUnit;
}

}  // namespace lucid
