// Stage "top_p": nucleus sampling (Holtzman et al. 2020): keeps the fewest most likely candidates
// whose probability reaches p; the one that crosses p stays, and of equal ones the lower id is
// taken first.
#include <algorithm>

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

void Apply(const StageInput& input, Candidates& candidates) {
  const double p = input.params.top_p;
  const auto min_keep = static_cast<size_t>(input.params.min_keep);
  const Weights weights = SoftmaxWeights(candidates);
  std::vector<Ranked> ranked = DropTail(weights, p, std::min(min_keep, candidates.size()));
  const size_t n = PartitionByMass(ranked, p * weights.sum, min_keep);
  if (n == candidates.size()) return;
  ranked.resize(n);
  std::sort(ranked.begin(), ranked.end(),
            [](const Ranked& a, const Ranked& b) { return a.index < b.index; });
  for (size_t i = 0; i < n; ++i) candidates[i] = candidates[ranked[i].index];
  candidates.resize(n);
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
};

}  // namespace lucid
