// Time since a moment, on the clock that never goes back.
#pragma once

#include <chrono>

namespace lucid {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace lucid
