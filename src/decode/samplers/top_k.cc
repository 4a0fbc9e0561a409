// Stage "top_k": keeps the k most likely candidates. Those exactly as likely as the k-th stay too,
// so the kept set does not depend on how equal logits happen to be ordered (transformers does the
// same).
#include <algorithm>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/select.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams&) {
  return {};  // every number has a meaning: 0 and below switch the stage off
}

bool Active(const SamplerParams& params) {
  return params.top_k > 0;
}

std::string Setting(const SamplerParams& params) {
  return fmt::format("top_k={}", params.top_k);
}

void Apply(const StageInput& input, Candidates& candidates) {
  const auto k = static_cast<size_t>(std::max(input.params.top_k, input.params.min_keep));
  if (k >= candidates.size()) return;
  const float limit = KthLargestLogit(candidates, k);
  std::erase_if(candidates, [limit](const Candidate& c) { return c.logit < limit; });
}

bool Select(const StageInput& input, LogitRow& row, Candidates& candidates) {
  row.Largest(static_cast<size_t>(std::max(input.params.top_k, input.params.min_keep)), candidates);
  return !candidates.empty();
}

}  // namespace

extern const SamplerStage kTopKStage = {
    .name = "top_k",
    .help = "keeps the k most likely tokens (and those equal to the k-th)",
    .kind = StageKind::kReshape,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
    .select = Select,
};

}  // namespace lucid
