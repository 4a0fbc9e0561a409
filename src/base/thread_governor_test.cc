// The governor against machines made of numbers: what a run of n threads gets there is a function.
#include "base/thread_governor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace lucid {
namespace {

using std::chrono::milliseconds;

// A machine whose clock goes on with the runs.
struct Machine {
  std::function<double(int)> cpus;  // that a run of n threads gets
  Clock::time_point now{};
  milliseconds run{2};

  // Runs for `time`; the share of it that had more or fewer threads than `threads`.
  double TimeAwayFrom(int threads, ThreadGovernor& governor, milliseconds time) {
    milliseconds away{0};
    const Clock::time_point end = now + time;
    while (now < end) {
      if (governor.threads() != threads) away += run;
      const double got = cpus(governor.threads());
      now += run;
      governor.Note(
          {.wall = run, .cpu = std::chrono::duration_cast<std::chrono::nanoseconds>(run * got)},
          now);
    }
    return static_cast<double>(away.count()) / static_cast<double>(time.count());
  }
};

double Undisturbed(int n) {
  return n;
}

TEST(ThreadGovernor, KeepsAllThreadsWhereTheyHaveTheirCpus) {
  for (const int n : {1, 2, 3, 16, 96}) {
    ThreadGovernor governor(n);
    Machine machine{.cpus = [](int k) { return 0.97 * k; }};
    if (n > 30) machine.cpus = [](int k) { return 0.995 * k; };
    EXPECT_EQ(machine.TimeAwayFrom(n, governor, milliseconds(5000)), 0) << n;
  }
}

TEST(ThreadGovernor, LeavesABusyCpuToTheOtherProcessAndComesBack) {
  for (const int n : {2, 3, 8}) {
    ThreadGovernor governor(n);
    Machine machine{.cpus = [n](int k) { return k < n ? k : 0.3 * k; }};
    machine.TimeAwayFrom(n - 1, governor, milliseconds(2000));
    // In the long run only tries interrupt it.
    EXPECT_LT(machine.TimeAwayFrom(n - 1, governor, milliseconds(20000)), 0.03) << n;
    machine.cpus = Undisturbed;
    machine.TimeAwayFrom(n, governor, milliseconds(5000));
    EXPECT_EQ(machine.TimeAwayFrom(n, governor, milliseconds(5000)), 0) << n;
  }
}

TEST(ThreadGovernor, FindsTheCpusThatSeveralProcessesLeave) {
  ThreadGovernor governor(16);
  Machine machine{.cpus = [](int k) { return k <= 11 ? k : 0.3 * k; }};
  machine.TimeAwayFrom(11, governor, milliseconds(3000));
  EXPECT_LT(machine.TimeAwayFrom(11, governor, milliseconds(20000)), 0.03);
}

TEST(ThreadGovernor, StaysWhereFewerThreadsGetLess) {
  ThreadGovernor governor(8);  // as many busy processes as CPUs
  Machine machine{.cpus = [](int k) { return 0.4 * k; }};
  machine.TimeAwayFrom(8, governor, milliseconds(2000));
  EXPECT_LT(machine.TimeAwayFrom(8, governor, milliseconds(20000)), 0.03);
}

TEST(ThreadGovernor, RunsNoMoreThreadsThanThereAreCpus) {
  ThreadGovernor governor(6);  // on 2
  Machine machine{.cpus = [](int k) { return std::min(k, 2); }};
  machine.TimeAwayFrom(2, governor, milliseconds(2000));
  EXPECT_LT(machine.TimeAwayFrom(2, governor, milliseconds(20000)), 0.03);
}

TEST(ThreadGovernor, DecidesAfterOneRunIfItIsLong) {
  ThreadGovernor governor(2);
  Machine machine{.cpus = [](int k) { return k == 1 ? 1.0 : 0.5; }, .run = milliseconds(400)};
  machine.TimeAwayFrom(1, governor, milliseconds(800));  // the first one is not judged
  EXPECT_EQ(governor.threads(), 1);
}

TEST(ThreadGovernor, AMomentOfTroubleCostsAMoment) {
  ThreadGovernor governor(4);
  Machine machine{.cpus = Undisturbed};
  machine.TimeAwayFrom(4, governor, milliseconds(1000));
  machine.cpus = [](int k) { return 0.2 * k; };
  machine.TimeAwayFrom(4, governor, milliseconds(60));
  machine.cpus = Undisturbed;
  EXPECT_LT(machine.TimeAwayFrom(4, governor, milliseconds(1000)), 0.3);
  EXPECT_EQ(governor.threads(), 4);
}

}  // namespace
}  // namespace lucid
