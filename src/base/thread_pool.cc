// The pool of thread_pool.h: each worker has a counter that starts its runs, and one counter of all
// releases each barrier.
//
// Waiting has two stages. A thread first spins with PAUSE for about the time a peer needs to come
// along when all of them have a CPU; then it sleeps in the kernel, so that a peer that lost its CPU
// gets one and an idle engine costs nothing. With more threads than CPUs the spinning stage only
// yields: the peer cannot arrive while we hold its CPU.
#include "base/thread_pool.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/topology.h"

namespace lucid {
namespace {

constexpr size_t kCacheLine = 64;
// A kernel of a small model takes 5 to 50 us; sleeping and waking costs about as much.
constexpr std::chrono::microseconds kSpinTime{40};
constexpr int kPausesPerClockRead = 32;
constexpr int kYieldsWhenCrowded = 4;

inline void CpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A counter on a cache line of its own, so that spinning on it does not slow down writes to its
// neighbours.
struct alignas(kCacheLine) Counter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Returns when value != seen. `crowded`: there are fewer CPUs than threads.
  void WaitForChange(uint32_t seen, bool crowded) {
    if (crowded) {
      for (int i = 0; i < kYieldsWhenCrowded; ++i) {
        if (value.load(std::memory_order_acquire) != seen) return;
        std::this_thread::yield();
      }
    } else {
      const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
      do {
        for (int i = 0; i < kPausesPerClockRead; ++i) {
          if (value.load(std::memory_order_acquire) != seen) return;
          CpuPause();
        }
      } while (std::chrono::steady_clock::now() < give_up);
    }
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (value.load(std::memory_order_seq_cst) == seen)
      value.wait(seen, std::memory_order_acquire);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  // Either this sees the sleeper, or the sleeper sees the new value before it sleeps: all four
  // accesses have one order. Waking is asked for only then: the standard library counts sleepers
  // of several atomics together and would make a system call for those of another.
  void Advance() {
    value.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) value.notify_all();
  }
};

// CPU time of the calling thread.
std::chrono::nanoseconds ThreadCpuTime() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

struct alignas(kCacheLine) Worker {
  Counter start;                    // advances with each run that it takes part in
  std::chrono::nanoseconds cpu{0};  // of its last run
  std::thread thread;
};

}  // namespace

struct ThreadPool::State {
  explicit State(int n_threads) : workers(static_cast<size_t>(n_threads)) {}

  std::vector<Worker> workers;  // the first is the caller of Run() and has no thread
  bool crowded = false;
  // Written before a worker's `start` advances, read after.
  const std::function<void(int)>* body = nullptr;
  uint32_t running = 0;  // threads of this run
  bool stop = false;
  Counter released;  // generation of Barrier()
  Counter arrived;   // threads that wait at the barrier now

  void Barrier() {
    // Both are read before arriving: the last arrival may advance `released` at once, and then the
    // next run, of another number of threads, may begin.
    const uint32_t threads = running;
    if (threads == 1) return;
    const uint32_t generation = released.value.load(std::memory_order_acquire);
    const uint32_t before = arrived.value.fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 == threads) {
      arrived.value.store(0, std::memory_order_relaxed);
      released.Advance();
    } else {
      released.WaitForChange(generation, crowded);
    }
  }

  void RunBody(int thread) {
    const std::chrono::nanoseconds before = ThreadCpuTime();
    (*body)(thread);
    workers[static_cast<size_t>(thread)].cpu = ThreadCpuTime() - before;
    Barrier();
  }

  void Work(int thread) {
    Counter& start = workers[static_cast<size_t>(thread)].start;
    for (uint32_t generation = 0;; ++generation) {
      start.WaitForChange(generation, crowded);
      if (stop) return;
      RunBody(thread);
    }
  }
};

ThreadPool::ThreadPool(int n_threads) {
  LUCID_CHECK(n_threads >= 1, "a pool of {} threads", n_threads);
  state_ = std::make_unique<State>(n_threads);
  state_->crowded = n_threads > AllowedCpuCount();
  for (int i = 1; i < n_threads; ++i) {
    state_->workers[static_cast<size_t>(i)].thread =
        std::thread([state = state_.get(), i] { state->Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  for (Worker& worker : state_->workers) worker.start.Advance();
  for (Worker& worker : state_->workers) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

int ThreadPool::size() const {
  return static_cast<int>(state_->workers.size());
}

PoolUsage ThreadPool::Run(int n_threads, const std::function<void(int)>& body) {
  LUCID_CHECK(n_threads >= 1 && n_threads <= size(), "{} threads of {}", n_threads, size());
  const auto start = std::chrono::steady_clock::now();
  const auto end = state_->workers.begin() + n_threads;
  state_->body = &body;
  state_->running = static_cast<uint32_t>(n_threads);
  for (auto worker = state_->workers.begin() + 1; worker != end; ++worker) worker->start.Advance();
  state_->RunBody(0);
  PoolUsage usage{.wall = std::chrono::steady_clock::now() - start};
  for (auto worker = state_->workers.begin(); worker != end; ++worker) usage.cpu += worker->cpu;
  return usage;
}

void ThreadPool::Barrier() {
  state_->Barrier();
}

}  // namespace lucid
