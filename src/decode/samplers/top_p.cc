// Stage "top_p": nucleus sampling (Holtzman et al. 2020): keeps the fewest most likely candidates
// whose probability reaches p; the one that crosses p stays, and of equal ones the lower id is
// taken first.
#include <algorithm>
#include <cmath>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/select.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams& params) {
  if (!(params.top_p >= 0 && params.top_p <= 1)) {
    return Err(ErrorCode::kInvalidArgument, "top_p is {}, but must be from 0 to 1 (1: off)",
               params.top_p);
  }
  return {};
}

bool Active(const SamplerParams& params) {
  return params.top_p < 1;
}

std::string Setting(const SamplerParams& params) {
  return fmt::format("top_p={}", params.top_p);
}

// The candidates that can be in the nucleus. If every weight below b is dropped and n * b is less
// than what may be missing from the sum, what is left still reaches p; so the long tail is never
// sorted.
std::vector<Ranked> DropTail(const Weights& weights, double p, size_t min_keep) {
  const auto n = static_cast<double>(weights.values.size());
  const double bar = weights.sum * (1 - p) / (2 * n);
  std::vector<Ranked> ranked;
  for (size_t i = 0; i < weights.values.size(); ++i) {
    const double weight = weights.values[i];
    if (weight >= bar) ranked.push_back({weight, weight, static_cast<uint32_t>(i)});
  }
  if (ranked.size() >= min_keep) return ranked;
  ranked.clear();
  for (size_t i = 0; i < weights.values.size(); ++i) {
    ranked.push_back({weights.values[i], weights.values[i], static_cast<uint32_t>(i)});
  }
  return ranked;
}

// The last of `kept` in the order of ComesFirst.
const Ranked& LastOf(std::span<const Ranked> kept) {
  return *std::max_element(kept.begin(), kept.end(), ComesFirst);
}

// Leaves the candidates up to `last`, which has one of `weights`.
void KeepUpTo(const Ranked& last, const Weights& weights, Candidates& candidates) {
  size_t n = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double weight = weights.values[i];
    if (weight > last.weight || (weight == last.weight && i <= last.index))
      candidates[n++] = candidates[i];
  }
  candidates.resize(n);
}

void Apply(const StageInput& input, Candidates& candidates) {
  const double p = input.params.top_p;
  const auto min_keep = static_cast<size_t>(input.params.min_keep);
  const Weights weights = SoftmaxWeights(candidates);
  std::vector<Ranked> ranked = DropTail(weights, p, std::min(min_keep, candidates.size()));
  const size_t n = PartitionByMass(ranked, p * weights.sum, min_keep);
  if (n == candidates.size()) return;
  KeepUpTo(LastOf(std::span(ranked).first(n)), weights, candidates);
}

// Leaves of `head`, the candidates whose logit is `limit` or more, the nucleus, where the weight of
// all candidates is `total`, give or take LogitRow::kError of it. False if that leaves any doubt
// about the nucleus, or it is larger than the head.
bool KeepNucleus(const StageInput& input, const Weights& weights, double total, float limit,
                 Candidates& head) {
  const double p = input.params.top_p;
  const auto min_keep = static_cast<size_t>(input.params.min_keep);
  const double doubt = LogitRow::kError * total;
  const double enough = p * total + doubt;
  if (weights.sum < enough) return false;
  std::vector<Ranked> ranked(head.size());
  for (size_t i = 0; i < head.size(); ++i)
    ranked[i] = {weights.values[i], weights.values[i], static_cast<uint32_t>(i)};
  const size_t n = PartitionByMass(ranked, enough, min_keep);
  const auto kept = std::span(ranked).first(n);
  double mass = 0;
  for (const Ranked& r : kept) mass += r.weight;
  const Ranked& last = LastOf(kept);
  // Without the last one it would certainly be too little, and no candidate outside the head could
  // stand in its place.
  const bool none_less = n <= min_keep || mass - last.weight < p * total - doubt;
  const bool none_other = last.weight > std::exp(limit - static_cast<double>(weights.max_logit));
  if (n < min_keep || mass < enough || !none_less || !none_other) return false;
  KeepUpTo(last, weights, head);
  return true;
}

// Exponentials of all candidates in full precision and their order are most of this stage's cost.
// The nucleus is mostly a few hundred or thousand; then only theirs are taken.
bool Select(const StageInput& input, LogitRow& row, Candidates& candidates) {
  constexpr size_t kHead = 128;
  if (!row.CanWeigh() || row.n_blocks() < kHead) return false;
  row.Largest(kHead, candidates);
  if (candidates.size() < kHead) return false;
  float limit = row.Max();
  for (const Candidate& c : candidates) limit = std::min(limit, c.logit);
  const Weights head = SoftmaxWeights(candidates);
  const double total = row.Weight();
  if (KeepNucleus(input, head, total, limit, candidates)) return true;

  // What the nucleus needs beyond the head: from a few blocks first, then from all.
  const double need = std::max(0.0, input.params.top_p * total - head.sum);
  const double heaviest = std::exp(limit - static_cast<double>(row.Max()));
  for (const size_t stride : {size_t{8}, size_t{1}}) {
    // Three standard deviations of the sample, and the steps of LimitOfWeight.
    double reserve = 0.03 * need;
    if (stride > 1) reserve += 3 * std::sqrt(static_cast<double>(stride) * need * heaviest);
    reserve = std::min(reserve, (total - head.sum - need) / 2);
    const float lower = row.LimitOfWeight(need + reserve, limit, stride);
    row.AtLeast(lower, candidates);
    if (KeepNucleus(input, SoftmaxWeights(candidates), total, lower, candidates)) return true;
  }
  return false;
}

}  // namespace

extern const SamplerStage kTopPStage = {
    .name = "top_p",
    .help = "keeps the fewest most likely tokens whose probability reaches p",
    .kind = StageKind::kReshape,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
    .select = Select,
};

}  // namespace lucid
