// Stage "temperature": divides the logits by T. The maximum is subtracted first, which changes no
// probability and keeps a tiny T from overflowing: at worst a logit becomes -inf and its
// probability 0.
#include <cmath>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/select.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return Err(ErrorCode::kInvalidArgument,
               "temperature is {}, but must be a finite number of 0 (greedy) or more",
               params.temperature);
  }
  return {};
}

bool Active(const SamplerParams& params) {
  return params.temperature != 1;
}

std::string Setting(const SamplerParams& params) {
  return fmt::format("temperature={}", params.temperature);
}

void Apply(const StageInput& input, Candidates& candidates) {
  const double max = MaxLogit(candidates);
  for (Candidate& c : candidates) {
    // A quotient beyond the range of float becomes -inf.
    c.logit = static_cast<float>((c.logit - max) / input.params.temperature);
  }
}

bool AdjustRow(const StageInput& input, LogitRow& row) {
  row.Temper(input.params.temperature);
  return true;
}

}  // namespace

extern const SamplerStage kTemperatureStage = {
    .name = "temperature",
    .help =
        "divides the logits: below 1 sharper, above 1 flatter; 0 picks the "
        "most likely token",
    .kind = StageKind::kReshape,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
    .adjust_row = AdjustRow,
};

}  // namespace lucid
