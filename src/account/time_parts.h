// What the time of an op is made of, and why it differs from what was predicted: causes that are
// told apart by measurements, not by names. docs/accounting.md has the definitions.
// Neighbours: predict.h (what was predicted), exec/step_times.h (what was measured).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "account/predict.h"
#include "exec/step_times.h"

namespace lucid {

enum class Cause : int8_t {
  kDequantisation,  // decoding quantised weights and multiplying takes longer than reading them
  kArithmetic,      // the same where nothing is to be decoded: attention, plain weights
  kMemory,          // reading is slower, or faster, than the machine's reading loop
  kSync,            // threads wait for the last one
  kScheduling,      // outside of ops: waking threads, scheduler, batch, sampling, disturbed steps
  kOtherOps,        // ops that read neither weights nor cache to speak of: norms, rotations, sums
  kUnknown,         // no measurement says
};
inline constexpr size_t kCauses = 7;
std::string_view Name(Cause cause);  // "dequantisation", ...

// Seconds by cause.
struct CauseTimes {
  std::array<double, kCauses> seconds{};
  double& operator[](Cause cause) { return seconds[static_cast<size_t>(cause)]; }
  double operator[](Cause cause) const { return seconds[static_cast<size_t>(cause)]; }
  double sum() const;
  Cause largest() const;  // in size, whatever the sign
  CauseTimes& operator+=(const CauseTimes& other);
};

// Measured minus predicted. Waiting beyond a barrier's own time is kSync; the rest is what bounds
// the op: kMemory where reading takes longer than computing, else kDequantisation or kArithmetic,
// and kUnknown where neither takes half of its time. `barrier`: seconds.
CauseTimes ResidualOf(const LeastTimes& least, const StepTimes::OpSeconds& measured,
                      double predicted, double barrier);

// Measured minus the time of reading its bytes: what computing takes beyond reading, kMemory for
// what is left of its work, kSync for all waiting; of ops that hardly read, kOtherOps.
CauseTimes BeyondReading(const LeastTimes& least, const StepTimes::OpSeconds& measured);

}  // namespace lucid
