// Stage "penalties": makes tokens that have already occurred less (or more) likely.
//
// Repetition: a positive logit is divided by the penalty, another one multiplied, once per token of
// prompt and reply (Keskar et al. 2019, CTRL, section 4.1). Then frequency (per occurrence) and
// presence (once) are subtracted for tokens of the reply alone (the formula of the OpenAI API
// reference).
#include <algorithm>
#include <cmath>

#include "decode/samplers/stage.h"

namespace lucid {
namespace {

struct TokenCount {
  int32_t id;
  int count;
};

// Distinct tokens with their counts, ascending by id.
std::vector<TokenCount> CountTokens(std::vector<int32_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<TokenCount> counts;
  for (const int32_t id : tokens) {
    if (counts.empty() || counts.back().id != id) counts.push_back({id, 0});
    ++counts.back().count;
  }
  return counts;
}

// The last `n` tokens of prompt followed by reply, or only their part in the reply.
struct History {
  std::vector<int32_t> all;
  std::vector<int32_t> reply;
};

History LastTokens(const StageInput& input) {
  const size_t total = input.prompt.size() + input.reply.size();
  const size_t n = input.params.repeat_last_n < 0
                       ? total
                       : std::min(total, static_cast<size_t>(input.params.repeat_last_n));
  const auto reply = input.reply.last(std::min(n, input.reply.size()));
  const auto prompt = input.prompt.last(n - reply.size());
  History history;
  history.all.assign(prompt.begin(), prompt.end());
  history.all.insert(history.all.end(), reply.begin(), reply.end());
  history.reply.assign(reply.begin(), reply.end());
  return history;
}

// Calls adjust(logit, count) for each counted token that is still a candidate.
template <typename Adjust>
void ForEachCounted(const std::vector<TokenCount>& counts, Candidates& candidates, Adjust adjust) {
  auto it = candidates.begin();
  for (const TokenCount& token : counts) {
    it = std::lower_bound(it, candidates.end(), token.id,
                          [](const Candidate& c, int32_t id) { return c.id < id; });
    if (it == candidates.end()) return;
    if (it->id == token.id) adjust(it->logit, token.count);
  }
}

void Apply(const StageInput& input, Candidates& candidates) {
  const SamplerParams& params = input.params;
  const History history = LastTokens(input);
  if (params.repetition_penalty != 1.0f) {
    ForEachCounted(CountTokens(history.all), candidates, [&](float& logit, int) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    });
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    ForEachCounted(CountTokens(history.reply), candidates, [&](float& logit, int count) {
      logit -= static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
    });
  }
}

Status Validate(const SamplerParams& params) {
  if (!std::isfinite(params.repetition_penalty) || params.repetition_penalty <= 0) {
    return Err(ErrorCode::kInvalidArgument,
               "repetition_penalty is {}, but must be a finite number above 0 "
               "(1: off)",
               params.repetition_penalty);
  }
  if (!std::isfinite(params.frequency_penalty)) {
    return Err(ErrorCode::kInvalidArgument,
               "frequency_penalty is {}, but must be a finite number (0: off)",
               params.frequency_penalty);
  }
  if (!std::isfinite(params.presence_penalty)) {
    return Err(ErrorCode::kInvalidArgument,
               "presence_penalty is {}, but must be a finite number (0: off)",
               params.presence_penalty);
  }
  if (params.repeat_last_n < -1) {
    return Err(ErrorCode::kInvalidArgument,
               "repeat_last_n is {}, but must be -1 (all tokens), 0 (none) or a count",
               params.repeat_last_n);
  }
  return {};
}

bool Active(const SamplerParams& params) {
  return params.repeat_last_n != 0 &&
         (params.repetition_penalty != 1.0f || params.frequency_penalty != 0 ||
          params.presence_penalty != 0);
}

std::string Setting(const SamplerParams& params) {
  std::string text = "penalties";
  const auto add = [&text](std::string_view name, float value, float off) {
    if (value == off) return;
    text += fmt::format("{}{}={}", text == "penalties" ? "(" : ",", name, value);
  };
  add("repetition", params.repetition_penalty, 1);
  add("frequency", params.frequency_penalty, 0);
  add("presence", params.presence_penalty, 0);
  if (text == "penalties") return text;
  if (params.repeat_last_n >= 0) text += fmt::format(",last_n={}", params.repeat_last_n);
  return text + ")";
}

}  // namespace

extern const SamplerStage kPenaltiesStage = {
    .name = "penalties",
    .help =
        "repetition penalty over prompt and reply; frequency and presence "
        "over the reply",
    .kind = StageKind::kAdjust,
    .in_default_chain = true,
    .validate = Validate,
    .active = Active,
    .setting = Setting,
    .apply = Apply,
};

}  // namespace lucid
