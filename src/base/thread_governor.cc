#include "base/thread_governor.h"

#include <algorithm>
#include <cmath>

namespace lucid {
namespace {

// Some turns of the system's scheduler, which lets a process go on for about 3 ms.
constexpr std::chrono::milliseconds kWindow{25};
constexpr std::chrono::milliseconds kFirstPause{250};
constexpr std::chrono::milliseconds kLongestPause{4000};
// More threads have to show a part of the CPU that they are meant to bring.
constexpr double kLeastGain = 0.25;

}  // namespace

void ThreadGovernor::Note(const PoolUsage& run, Clock::time_point now) {
  if (most_ == 1) return;
  if (first_run_) {  // threads were woken, and the system finds CPUs for them
    first_run_ = false;
    return;
  }
  wall_ += run.wall;
  cpu_ += run.cpu;
  if (wall_ < kWindow) return;
  const double cpus = static_cast<double>(cpu_.count()) / static_cast<double>(wall_.count());
  wall_ = cpu_ = {};
  Judge(cpus, now);
}

void ThreadGovernor::Judge(double cpus, Clock::time_point now) {
  if (trying_) {
    trying_ = false;
    const bool helped = cpus >= cpus_before_ + (threads_ > threads_before_ ? kLeastGain : 0);
    if (helped) {
      pause_ = {};
    } else {
      pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
      Set(threads_before_);
    }
    next_try_ = now + pause_;
    return;
  }
  if (now < next_try_) return;
  if (threads_ > 1 && cpus < threads_ - 1) {
    // As many as get no less if each has a CPU for itself; more are tried afterwards.
    Try(std::clamp(static_cast<int>(std::ceil(cpus)), 1, threads_ - 1), cpus);
  } else if (threads_ < most_) {
    Try(threads_ + 1, cpus);
  }
}

void ThreadGovernor::Try(int threads, double cpus) {
  trying_ = true;
  threads_before_ = threads_;
  cpus_before_ = cpus;
  Set(threads);
}

void ThreadGovernor::Set(int threads) {
  threads_ = threads;
  first_run_ = true;
}

}  // namespace lucid
