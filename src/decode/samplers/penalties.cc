// Stage "penalties": makes tokens that have already occurred less (or more) likely.
//
// Repetition: a positive logit is divided by the penalty, another one multiplied, once per token of
// prompt and reply (Keskar et al. 2019, CTRL, section 4.1). Then frequency (per occurrence) and
// presence (once) are subtracted for tokens of the reply alone (the formula of the OpenAI API
// reference).
#include <algorithm>
#include <bit>
#include <cmath>

#include "decode/samplers/logit_row.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

struct TokenCount {
  int32_t id = 0;
  int count = 0;
};

// Adds `tokens` to a table of counts by open addressing; a count of 0 is a free slot. A long
// conversation repeats itself: sorting all of it at every token would cost more than the choice.
void CountTokens(std::span<const int32_t> tokens, std::vector<TokenCount>& table) {
  const size_t mask = table.size() - 1;
  for (const int32_t id : tokens) {
    size_t at = static_cast<uint32_t>(id) * 0x9E3779B97F4A7C15ULL >> 32 & mask;
    while (table[at].count != 0 && table[at].id != id) at = (at + 1) & mask;
    table[at].id = id;
    ++table[at].count;
  }
}

// Distinct tokens of both with their counts, in no order.
std::vector<TokenCount> Counted(std::span<const int32_t> prompt, std::span<const int32_t> reply) {
  // Kept, because the pages of a new one would cost more than the counting.
  thread_local std::vector<TokenCount> table;
  const size_t n = prompt.size() + reply.size();
  table.assign(std::bit_ceil(n + n / 4 + 1), TokenCount());
  CountTokens(prompt, table);
  CountTokens(reply, table);
  std::vector<TokenCount> counts;
  for (const TokenCount& token : table) {
    if (token.count != 0) counts.push_back(token);
  }
  return counts;
}

// Calls adjust(logit, count) for each counted token that is still a candidate.
template <typename Adjust>
void ForEachCounted(std::vector<TokenCount> counts, Candidates& candidates, const Adjust& adjust) {
  std::sort(counts.begin(), counts.end(),
            [](const TokenCount& a, const TokenCount& b) { return a.id < b.id; });
  auto it = candidates.begin();
  for (const TokenCount& token : counts) {
    it = std::lower_bound(it, candidates.end(), token.id,
                          [](const Candidate& c, int32_t id) { return c.id < id; });
    if (it == candidates.end()) return;
    if (it->id == token.id) adjust(it->logit, token.count);
  }
}

template <typename Adjust>
void ForEachCounted(const std::vector<TokenCount>& counts, LogitRow& row, const Adjust& adjust) {
  for (const TokenCount& token : counts) {
    if (float* logit = row.Find(token.id)) adjust(*logit, token.count);
  }
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
    ForEachCounted(Counted(prompt, reply), logits, [&](float& logit, int) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    });
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    ForEachCounted(Counted({}, reply), logits, [&](float& logit, int count) {
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
    .apply = Apply<Candidates>,
    .adjust_row = Apply<LogitRow>,
};

}  // namespace lucid
