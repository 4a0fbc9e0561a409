// Stage "typical_p": locally typical sampling (Meister et al. 2022): keeps the candidates whose
// surprise -log p lies nearest to the entropy H of the distribution, the fewest whose probability
// reaches typical_p. Candidates exactly as near as the last one stay. The best token may go.
#include <algorithm>
#include <cmath>

#include "decode/samplers/select.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams& params) {
  if (!(params.typical_p >= 0 && params.typical_p <= 1)) {
    return Err(ErrorCode::kInvalidArgument, "typical_p is {}, but must be from 0 to 1 (1: off)",
               params.typical_p);
  }
  return {};
}

bool Active(const SamplerParams& params) {
  return params.typical_p < 1;
}

std::string Setting(const SamplerParams& params) {
  return fmt::format("typical_p={}", params.typical_p);
}

void Apply(const StageInput& input, Candidates& candidates) {
  const Weights weights = SoftmaxWeights(candidates);
  const double log_sum = std::log(weights.sum);
  const auto surprise = [&](size_t i) {  // -log p; +inf for an impossible token
    return log_sum - (static_cast<double>(candidates[i].logit) - weights.max_logit);
  };
  double entropy = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (weights.values[i] > 0) entropy += weights.values[i] / weights.sum * surprise(i);
  }
  std::vector<Ranked> ranked(candidates.size());
  std::vector<double> distance(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    distance[i] = std::abs(surprise(i) - entropy);
    ranked[i] = {-distance[i], weights.values[i], static_cast<uint32_t>(i)};
  }
  const double target = static_cast<double>(input.params.typical_p) * weights.sum;
  const size_t n = PartitionByMass(ranked, target, static_cast<size_t>(input.params.min_keep));
  double limit = 0;
  for (size_t i = 0; i < n; ++i) limit = std::max(limit, distance[ranked[i].index]);
  size_t kept = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (distance[i] <= limit) candidates[kept++] = candidates[i];
  }
  candidates.resize(kept);
}

}  // namespace

extern const SamplerStage kTypicalPStage = {
    .name = "typical_p",
    .help =
        "keeps tokens whose surprise is nearest to the entropy, up to "
        "probability p",
    .kind = StageKind::kReshape,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
};

}  // namespace lucid
