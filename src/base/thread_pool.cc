// The pool of thread_pool.h: one generation counter starts a run, another releases each barrier.
//
// Waiting has two stages. A thread first spins with PAUSE for about the time a peer needs to come
// along when all of them have a CPU; then it sleeps in the kernel, so that a peer that lost its CPU
// gets one and an idle engine costs nothing. With more threads than CPUs the spinning stage only
// yields: the peer cannot arrive while we hold its CPU.
#include "base/thread_pool.h"

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

  // Returns when value != seen. `crowded`: there are fewer CPUs than threads.
  void WaitForChange(uint32_t seen, bool crowded) const {
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
    while (value.load(std::memory_order_acquire) == seen)
      value.wait(seen, std::memory_order_acquire);
  }

  // The increment is a full fence: notify_all skips the system call when it sees no sleeper, and
  // that look must not come before the increment.
  void Advance() {
    value.fetch_add(1, std::memory_order_seq_cst);
    value.notify_all();
  }
};

}  // namespace

struct ThreadPool::State {
  int n_threads = 1;
  bool crowded = false;
  const std::function<void(int)>* body = nullptr;  // written before `start` advances, read after
  bool stop = false;                               // likewise
  Counter start;                                   // generation of Run()
  Counter released;                                // generation of Barrier()
  Counter arrived;                                 // threads that wait at the barrier now
  std::vector<std::thread> workers;

  void Barrier() {
    if (n_threads == 1) return;
    // Read before arriving: the last arrival may advance `released` at once.
    const uint32_t generation = released.value.load(std::memory_order_acquire);
    const uint32_t before = arrived.value.fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 == static_cast<uint32_t>(n_threads)) {
      arrived.value.store(0, std::memory_order_relaxed);
      released.Advance();
    } else {
      released.WaitForChange(generation, crowded);
    }
  }

  void Work(int thread) {
    for (uint32_t generation = 0;; ++generation) {
      start.WaitForChange(generation, crowded);
      if (stop) return;
      (*body)(thread);
      Barrier();
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : state_(std::make_unique<State>()) {
  LUCID_CHECK(n_threads >= 1, "a pool of {} threads", n_threads);
  state_->n_threads = n_threads;
  state_->crowded = n_threads > AllowedCpuCount();
  state_->workers.reserve(static_cast<size_t>(n_threads - 1));
  for (int i = 1; i < n_threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->start.Advance();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::size() const {
  return state_->n_threads;
}

void ThreadPool::Run(const std::function<void(int)>& body) {
  state_->body = &body;
  state_->start.Advance();
  body(0);
  state_->Barrier();
}

void ThreadPool::Barrier() {
  state_->Barrier();
}

}  // namespace lucid
