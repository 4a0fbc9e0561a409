// ThreadPool: a fixed set of threads that run one function together, with a barrier they share.
//
// Run() starts the function on all threads, or on the first few (the caller is thread 0), and
// returns when all of them have finished. Inside, the threads meet at Barrier(). Workers spin
// briefly between runs and then sleep, so an idle engine costs no CPU; a worker that takes no part
// in runs is not woken by them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace lucid {

// What a run took. A thread that waits asleep, or wants a CPU that another process has, uses none:
// cpu / wall is how many CPUs the run had for itself.
struct PoolUsage {
  std::chrono::nanoseconds wall{0};
  std::chrono::nanoseconds cpu{0};  // of all its threads together
};

class ThreadPool {
 public:
  // `n_threads` >= 1, the calling thread of Run() included.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(thread) on every thread, 0 <= thread < size(). Not re-entrant; one caller at a time.
  PoolUsage Run(const std::function<void(int)>& body) { return Run(size(), body); }
  // The same on the first `n_threads` threads, 1 <= n_threads <= size().
  PoolUsage Run(int n_threads, const std::function<void(int)>& body);

  // Waits until all threads of the current Run() have come here. Every thread must call it equally
  // often.
  void Barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The number of physical cores this process may run on: the default of --threads.
int PhysicalCoreCount();

}  // namespace lucid
