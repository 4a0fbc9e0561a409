// Stage "penalties": makes tokens that have already occurred less (or more) likely.
//
// Repetition: a positive logit is divided by the penalty, another one multiplied, once per token of
// prompt and reply (Keskar et al. 2019, CTRL, section 4.1). Then frequency (per occurrence) and
// presence (once) are subtracted for tokens of the reply alone (the formula of the OpenAI API
// reference).
#include <algorithm>
#include <cmath>
#include <utility>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

struct TokenCount {
  int32_t id = 0;
  int count = 0;
};

// Distinct tokens of both below `n_ids` with their counts, in no order.
std::vector<TokenCount> Counted(std::span<const int32_t> prompt, std::span<const int32_t> reply,
                                size_t n_ids) {
  // All zero between calls. A long conversation repeats itself: whatever looks at every token of it
  // more than once costs more than the choice of the next.
  thread_local std::vector<int32_t> count_of;
  if (count_of.size() < n_ids) count_of.resize(n_ids);
  std::vector<TokenCount> counts;
  for (const auto tokens : {prompt, reply}) {
    for (const int32_t id : tokens) {
      if (id < 0 || static_cast<size_t>(id) >= n_ids) continue;
      if (count_of[static_cast<size_t>(id)]++ == 0) counts.push_back({.id = id});
    }
  }
  for (TokenCount& token : counts)
    token.count = std::exchange(count_of[static_cast<size_t>(token.id)], 0);
  return counts;
}

size_t IdsOf(const Candidates& candidates) {
  return static_cast<size_t>(candidates.back().id) + 1;
}
size_t IdsOf(const LogitRow& row) {
  return row.size();
}

// The logit of `id`, or nullptr if it is no candidate.
float* Find(int32_t id, Candidates& candidates) {
  const auto it =
      std::lower_bound(candidates.begin(), candidates.end(), id,
                       [](const Candidate& c, int32_t wanted) { return c.id < wanted; });
  return it != candidates.end() && it->id == id ? &it->logit : nullptr;
}
float* Find(int32_t id, LogitRow& row) {
  return row.Find(id);
}

// `logits`: a list of candidates or a row.
template <typename Logits>
void Apply(const StageInput& input, Logits& logits) {
  const SamplerParams& params = input.params;
  const size_t total = input.prompt.size() + input.reply.size();
  const size_t n =
      params.repeat_last_n < 0 ? total : std::min(total, static_cast<size_t>(params.repeat_last_n));
  const auto reply = input.reply.last(std::min(n, input.reply.size()));
  const auto prompt = input.prompt.last(n - reply.size());
  if (params.repetition_penalty != 1.0f) {
    for (const TokenCount& token : Counted(prompt, reply, IdsOf(logits))) {
      if (float* logit = Find(token.id, logits))
        *logit =
            *logit > 0 ? *logit / params.repetition_penalty : *logit * params.repetition_penalty;
    }
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    for (const TokenCount& token : Counted({}, reply, IdsOf(logits))) {
      if (float* logit = Find(token.id, logits))
        *logit -=
            static_cast<float>(token.count) * params.frequency_penalty + params.presence_penalty;
    }
  }
}

bool AdjustRow(const StageInput& input, LogitRow& row) {
  if (row.searched()) return false;
  Apply(input, row);
  return true;
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
    .apply = Apply<Candidates>,
    .adjust_row = AdjustRow,
};

}  // namespace lucid
