// Multiple choice, as lm-evaluation-harness scores it: which ending does the model think likeliest
// after a context? `accuracy` takes the sum of the ending's log-probabilities, `accuracy_norm`
// divides it by the ending's characters, so that long endings have a chance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace lucid {

struct ChoiceTask {
  std::string context;
  std::vector<std::string> endings;
  size_t label = 0;  // the right one
};

// A line of a JSONL file in HellaSwag's format: "ctx" (or "ctx_a" and "ctx_b", with
// "activity_label" before them where there is one), "endings", "label" (a number or a string with
// one). kInvalidArgument names what is missing.
Result<ChoiceTask> ParseChoiceTask(std::string_view json);

struct ChoiceScore {
  size_t best = 0;       // by sum
  size_t best_norm = 0;  // by sum per character
  std::vector<double> log_probs;
};

// kContextLength where a context with an ending is longer than the engine's context.
Result<ChoiceScore> ScoreChoices(Engine& engine, const ChoiceTask& task);

}  // namespace lucid
