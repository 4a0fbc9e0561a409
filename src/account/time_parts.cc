#include "account/time_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lucid {
namespace {

// An op of which reading or computing takes less than this part is made of something else.
constexpr double kLeastPart = 0.5;

bool Explained(const LeastTimes& least, double work) {
  return std::max(least.reading, least.computing) >= kLeastPart * work && work > 0;
}

Cause CauseOfComputing(const LeastTimes& least) {
  return least.quantised ? Cause::kDequantisation : Cause::kArithmetic;
}

}  // namespace

std::string_view Name(Cause cause) {
  constexpr std::array<std::string_view, kCauses> kNames = {
      "dequantisation", "arithmetic", "memory", "sync", "scheduling", "other ops", "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

double CauseTimes::sum() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

Cause CauseTimes::largest() const {
  const auto most = std::max_element(seconds.begin(), seconds.end(),
                                     [](double a, double b) { return std::abs(a) < std::abs(b); });
  return static_cast<Cause>(most - seconds.begin());
}

CauseTimes& CauseTimes::operator+=(const CauseTimes& other) {
  for (size_t i = 0; i < kCauses; ++i) seconds[i] += other.seconds[i];
  return *this;
}

CauseTimes ResidualOf(const LeastTimes& least, const StepTimes::OpSeconds& measured,
                      double predicted, double barrier) {
  CauseTimes causes;
  causes[Cause::kSync] = std::max(0.0, measured.wait - barrier);
  const double rest = measured.total() - predicted - causes[Cause::kSync];
  const Cause cause = !Explained(least, measured.work)   ? Cause::kUnknown
                      : least.reading >= least.computing ? Cause::kMemory
                                                         : CauseOfComputing(least);
  causes[cause] += rest;
  return causes;
}

CauseTimes BeyondReading(const LeastTimes& least, const StepTimes::OpSeconds& measured) {
  CauseTimes causes;
  causes[Cause::kSync] = measured.wait;
  if (!Explained(least, measured.work)) {
    causes[Cause::kOtherOps] = measured.work - least.reading;
    return causes;
  }
  const double longer = std::max(least.reading, least.computing);
  causes[CauseOfComputing(least)] = longer - least.reading;
  causes[Cause::kMemory] = measured.work - longer;
  return causes;
}

}  // namespace lucid
