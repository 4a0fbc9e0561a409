// Profile: measured against predicted, op by op. Runs prompts and tokens through the engine's own
// loop, with the clock of StepTimes on, and puts beside every op what the ledger says that it costs
// and the machine's figures say that it takes. docs/accounting.md explains every number.
// Neighbours: study.h (the prediction alone), account/time_parts.h (causes), cli/profile_report.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "account/ledger.h"
#include "account/peak_source.h"
#include "account/predict.h"
#include "account/time_parts.h"
#include "engine/engine.h"
#include "exec/step_times.h"

namespace lucid {

struct ProfileOptions {
  // Tokens of each sequence; 0: no such phase. At least one of the two is not 0.
  int64_t prompt = 512, generated = 64;
  int64_t depth = 0;      // tokens that are in the cache before
  int32_t sequences = 1;  // at once
  int repetitions = 3;    // of the prompts, after one that does not count
  PeakSource::Say say;    // told what is measured of the machine; may be empty
};

// An op in a pass: a pass is all steps of the prompts, or one decode step.
struct ProfiledOp {
  LedgerRow row;  // its cost is that of a pass
  std::string_view kernel;
  OpTime predicted;
  double predicted_seconds = 0;
  LeastTimes least;
  StepTimes::OpSeconds measured;
  CauseTimes residual;  // measured minus predicted

  double residual_seconds() const { return measured.total() - predicted_seconds; }
};

// Times are means of the typical passes: the middle half of all that were timed.
struct ProfiledPhase {
  bool prefill = false;
  int64_t tokens = 0;  // of a pass, all sequences together
  int64_t steps = 0;   // of a pass
  int64_t passes = 0;  // timed
  int threads = 0;
  std::vector<ProfiledOp> ops;  // of the plan that runs: fused
  double seconds = 0;           // of a pass
  double before = 0;            // of them, until the model runs: decisions, the batch
  double ops_seconds = 0;       // in ops, at their barriers too
  double threads_seconds = 0;   // running the model, but in no op: threads start and end
  double after = 0;             // picking and handing out tokens
  double mean_seconds = 0;      // of all passes, disturbed ones too
  double cpus = 0;              // that the threads had on average
  // Decode: how much longer a timed step takes than one that is not; they take turns. Nothing where
  // there were too few.
  std::optional<double> timing_cost;

  double predicted_seconds() const;
  double tokens_per_second() const { return static_cast<double>(tokens) / mean_seconds; }
  double predicted_tokens_per_second() const {
    return static_cast<double>(tokens) / predicted_seconds();
  }
  // Of a pass, measured minus predicted.
  CauseTimes Residual() const;
  // From the limit, all bytes at the machine's reading speed, to mean_seconds.
  double ReadingSeconds() const;
  CauseTimes BeyondReading() const;
};

// A step that was timed.
struct ProfiledStep {
  bool prefill = false;
  Clock::time_point begin, end;  // of the engine's step; `times` is of the model in it
  StepTimes times;
  Workload work;
};

struct Profile {
  Hardware hardware;
  double barrier_seconds = 0;         // 0: not known
  std::vector<ProfiledPhase> phases;  // prefill, decode, as far as they were asked for
  std::vector<ProfiledStep> steps;    // in order
};

// The engine must share prefixes and have room for all sequences at once (ProfileContext tokens
// each). kCapacity where its cache is too small for that; errors of the machine's figures.
Result<Profile> MakeProfile(Engine& engine, const ProfileOptions& options);

// Positions that a sequence of such a profile comes to.
int64_t ProfileContext(const ProfileOptions& options);

}  // namespace lucid
