// The invariants of the source texts, judged on recorded steps: what a reader may rely on in every
// run of every model. `lucid trace --invariants` prints them.
//
// Entry point: CheckInvariants. Neighbours: exec/step_record.h (the facts), traced_run.h (a run).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/step_record.h"
#include "models/model_config.h"

namespace lucid {

enum class Verdict : int8_t { kPass, kFail, kNotApplicable };
std::string_view Name(Verdict verdict);  // "PASS", "FAIL", "n/a"

struct InvariantResult {
  std::string id = {};     // "residual-shape"
  std::string claim = {};  // what must hold, a short sentence
  Verdict verdict = Verdict::kFail;
  std::string found = {};  // what was compared, with numbers; of a failure, where it fails
};

// The steps of one run from its start: prefills (in any number of steps), then decode steps of the
// same sequences. Each invariant once:
//   residual-shape   the residual stream is [tokens, H] wherever an op writes it, in every layer
//   qkv-shapes       queries n_q heads of d, keys and values n_kv heads, n_q a multiple of n_kv
//   cache-appended   places that were in the cache before a step hold the same bytes after it
//   rope-on-qk       rotations lead to queries and keys, never to values; as the formula has them
//   causal-mask      row p of a prompt sees p + 1 keys, a decode step's all (or the window's)
//   softmax-rows     attention weights of every row sum to 1 and give what the kernel gave
std::vector<InvariantResult> CheckInvariants(std::span<const StepRecord> steps,
                                             const ModelConfig& config);

}  // namespace lucid
