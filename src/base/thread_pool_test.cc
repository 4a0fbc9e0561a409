// Every thread runs every body, barriers order writes, and the pool survives reuse, idling and
// crowding.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace lucid {
namespace {

class ThreadPoolSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolSizes, testing::Values(1, 2, 3, 7, 16));

TEST_P(ThreadPoolSizes, RunsTheBodyOncePerThreadManyTimes) {
  const int n = GetParam();
  ThreadPool pool(n);
  EXPECT_EQ(pool.size(), n);
  std::vector<int> calls(static_cast<size_t>(n), 0);  // plain ints: Run() itself must order them
  const int runs = n > 4 ? 300 : 5000;
  for (int i = 0; i < runs; ++i) {
    pool.Run([&](int t) { ++calls[static_cast<size_t>(t)]; });
  }
  for (int c : calls) EXPECT_EQ(c, runs);
}

TEST_P(ThreadPoolSizes, BarrierMakesThePhaseBeforeVisibleToAll) {
  const int n = GetParam();
  ThreadPool pool(n);
  std::vector<int> phase(static_cast<size_t>(n), 0);
  std::atomic<int> errors{0};
  const int phases = n > 4 ? 100 : 2000;
  for (int run = 0; run < 3; ++run) {
    pool.Run([&](int t) {
      for (int p = 1; p <= phases; ++p) {
        phase[static_cast<size_t>(t)] = p;
        pool.Barrier();
        for (int other : phase) errors += other != p ? 1 : 0;
        pool.Barrier();
      }
    });
  }
  EXPECT_EQ(errors.load(), 0);
}

TEST_P(ThreadPoolSizes, WakesUpAfterAllThreadsFellAsleep) {
  ThreadPool pool(GetParam());
  std::atomic<int> calls{0};
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    pool.Run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls.load(), 5 * GetParam());
}

TEST_P(ThreadPoolSizes, ASlowThreadIsWaitedForAtTheBarrier) {
  ThreadPool pool(GetParam());
  std::atomic<int> ready{0};
  std::atomic<int> errors{0};
  pool.Run([&](int t) {
    if (t == pool.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++ready;
    pool.Barrier();
    errors += ready.load() != pool.size() ? 1 : 0;
  });
  EXPECT_EQ(errors.load(), 0);
}

TEST_P(ThreadPoolSizes, RunsOnTheFirstThreadsOnly) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 40; ++round) {
    const int n = 1 + round * 7 % pool.size();
    std::vector<int> calls(static_cast<size_t>(pool.size()), 0);
    std::atomic<int> met{0};
    pool.Run(n, [&](int t) {
      ++calls[static_cast<size_t>(t)];
      ++met;
      pool.Barrier();
      EXPECT_EQ(met.load(), n);
    });
    for (int t = 0; t < pool.size(); ++t) EXPECT_EQ(calls[static_cast<size_t>(t)], t < n) << n;
  }
}

TEST(ThreadPool, CountsTheCpuTimeOfAllThreadsOfARun) {
  ThreadPool pool(3);
  const auto spin = [](int) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const PoolUsage usage = pool.Run(spin);
  EXPECT_GE(usage.wall, std::chrono::milliseconds(5));
  EXPECT_GT(usage.cpu, std::chrono::milliseconds(0));
  EXPECT_LE(usage.cpu, 3 * usage.wall + std::chrono::milliseconds(1));
  // Sleeping is no use of a CPU.
  const PoolUsage asleep =
      pool.Run(2, [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  EXPECT_GE(asleep.wall, std::chrono::milliseconds(50));
  EXPECT_LT(asleep.cpu, std::chrono::milliseconds(25));
}

TEST(ThreadPool, CanBeCreatedAndDestroyedWithoutARun) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(3);
}

}  // namespace
}  // namespace lucid
