// Stage "min_p": keeps candidates at least min_p times as likely as the best one (Nguyen et al.
// 2024). In logits that is a distance of log(min_p) from the maximum, so no exponential is taken.
#include <algorithm>
#include <cmath>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/select.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams& params) {
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return Err(ErrorCode::kInvalidArgument, "min_p is {}, but must be from 0 to 1 (0: off)",
               params.min_p);
  }
  return {};
}

bool Active(const SamplerParams& params) {
  return params.min_p > 0;
}

std::string Setting(const SamplerParams& params) {
  return fmt::format("min_p={}", params.min_p);
}

void Apply(const StageInput& input, Candidates& candidates) {
  double limit = MaxLogit(candidates) + std::log(static_cast<double>(input.params.min_p));
  const auto min_keep = std::min(static_cast<size_t>(input.params.min_keep), candidates.size());
  if (min_keep > 1) {
    limit = std::min(limit, static_cast<double>(KthLargestLogit(candidates, min_keep)));
  }
  std::erase_if(candidates, [limit](const Candidate& c) { return c.logit < limit; });
}

bool Select(const StageInput& input, LogitRow& row, Candidates& candidates) {
  if (input.params.min_keep > 1 || row.Max() == -INFINITY) return false;
  row.AtLeast(row.Max() + std::log(static_cast<double>(input.params.min_p)), candidates);
  return true;
}

}  // namespace

extern const SamplerStage kMinPStage = {
    .name = "min_p",
    .help = "keeps tokens at least min_p times as likely as the best one",
    .kind = StageKind::kReshape,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
    .select = Select,
};

}  // namespace lucid
