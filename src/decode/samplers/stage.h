// What a sampling stage is: one row of the registry, and the candidate list it works on.
//
// Each file of this folder defines one `extern const SamplerStage`; decode/registry.cc lists them
// in their default order and decode/sampler.cc runs them. Shared selection code is in select.h and
// logit_row.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"

namespace lucid {

struct Candidate {
  int32_t id;
  float logit;  // finite, or -inf once a temperature has made the token
                // impossible; never NaN
};

// Ascending by id at all times: stages remove in place and keep the order, so that the final draw
// does not depend on how a stage selects.
using Candidates = std::vector<Candidate>;

struct StageInput {
  const SamplerParams& params;
  std::span<const int32_t> prompt;  // tokens given by the caller
  std::span<const int32_t> reply;   // tokens sampled so far
};

class LogitRow;

enum class StageKind {
  kAdjust,   // changes logits by token; also runs before a greedy pick
  kReshape,  // changes all logits alike or removes candidates; has no say in a
             // greedy pick
};

struct SamplerStage {
  std::string_view name;
  std::string_view help;
  StageKind kind;
  bool in_default_chain;
  // kInvalidArgument names the parameter and its range.
  Status (*validate)(const SamplerParams& params);
  // False where the parameters make the stage do nothing.
  bool (*active)(const SamplerParams& params);
  std::string (*setting)(const SamplerParams& params);  // "top_k=40"
  // Never leaves the list empty, but for logit_bias, which may forbid every token.
  void (*apply)(const StageInput& input, Candidates& candidates);

  // The same on a row from which nothing has been removed (logit_row.h), for stages at the front of
  // a chain; nullptr where the stage has no faster way than by a list.
  // An adjusting stage changes the row; a forbidden token's logit becomes -inf. False if it left it
  // to apply.
  bool (*adjust_row)(const StageInput& input, LogitRow& row) = nullptr;
  // A selecting stage fills the empty list with what it keeps, exactly as apply would leave it;
  // false if it left it to apply. Never true for a row without candidates.
  bool (*select)(const StageInput& input, LogitRow& row, Candidates& candidates) = nullptr;
};

extern const SamplerStage kPenaltiesStage;
extern const SamplerStage kLogitBiasStage;
extern const SamplerStage kTopKStage;
extern const SamplerStage kTypicalPStage;
extern const SamplerStage kTopPStage;
extern const SamplerStage kMinPStage;
extern const SamplerStage kTemperatureStage;
extern const SamplerStage kGreedyStage;

// The registry: every stage, those of the default chain first and in its order.
std::span<const SamplerStage* const> SamplerStages();
const SamplerStage* FindSamplerStage(std::string_view name);  // nullptr if there is none

}  // namespace lucid
