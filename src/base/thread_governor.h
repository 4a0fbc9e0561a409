// ThreadGovernor: how many of a pool's threads take part in its runs while other processes want the
// CPUs too.
//
// Threads that meet at barriers are as fast as the one that has just lost its CPU: beside one busy
// process, two threads on two CPUs reach a quarter of their speed, and one thread alone two thirds
// or more. The governor watches how many CPUs the runs really get (PoolUsage). Where that is less
// than one thread fewer would have for itself, it tries fewer; later it tries more again, ever more
// seldom while that does not help. A try is kept only if it got more. So a wrong guess, such as
// about threads that wait for a disk, costs a few hundredths of a second now and then. Runs must
// give the same result with any number of threads.
//
//   const int n = governor.threads();
//   governor.Note(pool.Run(n, body), Clock::now());
#pragma once

#include <chrono>

#include "base/thread_pool.h"
#include "base/timer.h"

namespace lucid {

class ThreadGovernor {
 public:
  // Never more than `most` threads, most >= 1.
  explicit ThreadGovernor(int most) : most_(most), threads_(most) {}

  // For the next run.
  int threads() const { return threads_; }
  // What that run took; `now` is its end.
  void Note(const PoolUsage& run, Clock::time_point now);

 private:
  void Judge(double cpus, Clock::time_point now);
  void Try(int threads, double cpus);
  void Set(int threads);

  int most_;
  int threads_;
  // The window: runs are summed up until they say something.
  bool first_run_ = true;  // since the number of threads has changed
  std::chrono::nanoseconds wall_{0};
  std::chrono::nanoseconds cpu_{0};
  // A try goes on, and what there was before it.
  bool trying_ = false;
  int threads_before_ = 0;
  double cpus_before_ = 0;
  Clock::time_point next_try_{};
  std::chrono::milliseconds pause_{0};  // after a try that did not help
};

}  // namespace lucid
