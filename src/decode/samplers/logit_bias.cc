// Stage "logit_bias": adds a number to the logits of chosen tokens; -inf forbids a token.
#include <algorithm>
#include <cmath>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

Status Validate(const SamplerParams& params) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0) {
      return Err(ErrorCode::kInvalidArgument, "logit_bias names token {}, but ids are 0 and above",
                 id);
    }
    if (std::isnan(bias) || bias == INFINITY) {
      return Err(ErrorCode::kInvalidArgument,
                 "logit_bias of token {} is {}, but must be a finite number, "
                 "or -inf to forbid it",
                 id, bias);
    }
  }
  return {};
}

void Apply(const StageInput& input, Candidates& candidates) {
  auto it = candidates.begin();
  bool forbids = false;
  for (const auto& [id, bias] : input.params.logit_bias) {  // ascending by id, like the candidates
    it = std::lower_bound(it, candidates.end(), id,
                          [](const Candidate& c, int32_t wanted) { return c.id < wanted; });
    if (it == candidates.end()) break;
    if (it->id != id) continue;
    it->logit += bias;
    forbids = forbids || std::isinf(it->logit);
  }
  if (forbids) std::erase_if(candidates, [](const Candidate& c) { return c.logit == -INFINITY; });
}

bool AdjustRow(const StageInput& input, LogitRow& row) {
  if (row.searched()) return false;
  for (const auto& [id, bias] : input.params.logit_bias) {
    if (float* logit = row.Find(id)) *logit += bias;
  }
  return true;
}

bool Active(const SamplerParams& params) {
  return !params.logit_bias.empty();
}

std::string Setting(const SamplerParams& params) {
  return fmt::format("logit_bias({} tokens)", params.logit_bias.size());
}

}  // namespace

extern const SamplerStage kLogitBiasStage = {
    .name = "logit_bias",
    .help = "adds a bias to the logits of chosen tokens; -inf forbids one",
    .kind = StageKind::kAdjust,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
    .adjust_row = AdjustRow,
};

}  // namespace lucid
