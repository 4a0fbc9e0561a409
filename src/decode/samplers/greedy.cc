// Stage "greedy": keeps the most likely candidate alone, the lowest id among equal ones. A
// temperature of 0 puts it at the end of the chain in place of every other filter.
#include <algorithm>
#include <cmath>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams&) {
  return {};
}

bool Active(const SamplerParams&) {
  return true;
}

std::string Setting(const SamplerParams&) {
  return "greedy";
}

void Apply(const StageInput&, Candidates& candidates) {
  // max_element returns the first of equal elements, which is the lowest id.
  candidates[0] =
      *std::max_element(candidates.begin(), candidates.end(),
                        [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  candidates.resize(1);
}

bool Select(const StageInput&, LogitRow& row, Candidates& candidates) {
  if (row.Max() == -INFINITY) return false;
  candidates.assign(1, row.Best());
  return true;
}

}  // namespace

extern const SamplerStage kGreedyStage = {
    .name = "greedy",
    .help = "keeps only the most likely token, the lowest id among equals",
    .kind = StageKind::kReshape,
    .in_default_chain = false,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
    .select = Select,
};

}  // namespace lucid
