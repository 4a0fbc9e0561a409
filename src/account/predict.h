// Predictions: how long ops and steps take on a machine, from what they cost (plan/op_table.h) and
// what the machine can do (hardware.h).
//
// The roofline (Williams, Waterman, Patterson 2009): an op takes the longer of the time that its
// bytes need and the time that its arithmetic needs; activations pass through caches and count
// neither. Where the machine's own kernels have been measured, their rates take the place of the
// machine's, activations and a least time for every op are added: a prediction rather than a limit.
#pragma once

#include <cstdint>

#include "account/hardware.h"
#include "plan/op_table.h"
#include "plan/plan.h"

namespace lucid {

struct OpTime {
  double memory = 0;      // seconds for bytes of weights and cache
  double arithmetic = 0;  // seconds for products and all other FLOPs
  double other = 0;       // measured machines: what comes on top

  bool by_memory() const { return memory >= arithmetic; }
  double seconds() const { return (by_memory() ? memory : arithmetic) + other; }
};
// `cost` is what the op costs in the step that `work` describes.
OpTime TimeOf(const Hardware& hardware, const Plan& plan, const Op& op, const Workload& work,
              const Cost& cost);

// What an op needs at least on a machine whose kernels have been measured, in seconds.
struct LeastTimes {
  double reading = 0;      // bytes of weights and cache, as fast as the machine's reading loop
  double computing = 0;    // its kernels, with all operands in caches
  bool quantised = false;  // some of its weights are
};
LeastTimes LeastTimesOf(const Hardware& hardware, const Plan& plan, const Op& op,
                        const Workload& work, const Cost& cost);

struct StepTime {
  double seconds = 0;  // the ops' times, one after the other
  double memory = 0;   // the sums of their parts
  double arithmetic = 0;
  double roof = 0;  // if everything overlapped: the longer of all bytes and all arithmetic

  bool by_memory() const { return memory >= arithmetic; }
};
// `plan` is the one that runs: fused, for this engine.
StepTime PredictStep(const Hardware& hardware, const Plan& plan, const Workload& work);

// `batch` prompts of so many tokens, in steps of at most `step_tokens`.
StepTime PredictPrompts(const Hardware& hardware, const Plan& plan, int64_t batch, int64_t tokens,
                        int64_t step_tokens, const Workload& types);

// The least number of sequences with `context` tokens each whose decode step takes longer for
// arithmetic than for bytes; 0 where more sequences never bring that (up to 16,384).
int64_t ComputeBoundBatch(const Hardware& hardware, const Plan& plan, int64_t context,
                          const Workload& types);

}  // namespace lucid
