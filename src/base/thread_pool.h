// ThreadPool: a fixed set of threads that run one function together, with a barrier they share.
//
// Run() starts the function on all threads (the caller is thread 0) and returns when all have
// finished. Inside, the threads meet at Barrier(). Workers spin briefly between runs and then
// sleep, so an idle engine costs no CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lucid {

class ThreadPool {
 public:
  // `n_threads` >= 1, the calling thread of Run() included.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(thread) on every thread, 0 <= thread < size(). Not re-entrant; one caller at a time.
  void Run(const std::function<void(int)>& body);

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
