// A timed step: what threads note, and the times that follow.
#include "exec/step_times.h"

#include <gtest/gtest.h>

#include <thread>

namespace lucid {
namespace {

void Pass(std::chrono::microseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

// Two threads, two ops; the second is late in the second op, whose preparation both wait for.
TEST(StepTimes, SplitsOpsIntoWorkAndWaiting) {
  StepTimes times;
  times.Reserve(2, 2);
  ThreadPool pool(2);
  const auto body = [&](int thread) {
    const StepTimes::Writer marks = times.Of(thread);
    marks.Begin();
    marks.NotMet(0);
    Pass(std::chrono::microseconds(300));
    marks.Done(0);
    pool.Barrier();
    marks.Released(0);
    Pass(std::chrono::microseconds(thread == 0 ? 100 : 1100));
    marks.Prepared(1);
    pool.Barrier();
    marks.Met(1);
    Pass(std::chrono::microseconds(200));
    marks.Done(1);
    pool.Barrier();
    marks.Released(1);
  };
  StepView view;
  view.n_tokens = 7;
  times.BeginStep(2, 2, view);
  const PoolUsage usage = pool.Run(2, body);
  times.EndStep(usage);

  EXPECT_EQ(times.n_threads(), 2);
  EXPECT_EQ(times.n_ops(), 2U);
  EXPECT_EQ(times.step().n_tokens, 7);
  EXPECT_EQ(times.usage().wall, usage.wall);
  const double all = std::chrono::duration<double>(times.end() - times.begin()).count();
  // A thread never works less than it means to; other processes may make it longer.
  EXPECT_GE(times.Op(0).work, 0.29e-3);
  EXPECT_GE(times.Op(1).work, 0.79e-3);
  EXPECT_GE(times.Op(0).wait, 0);
  // One of the two waits for the late one.
  EXPECT_GE(times.Op(1).wait, 0);
  EXPECT_LE(times.Op(0).total() + times.Op(1).total(), all);
  for (int t = 0; t < 2; ++t) {
    double last = 0;
    for (size_t op = 0; op < 2; ++op) {
      const StepTimes::Slice slice = times.Of(t, op);
      EXPECT_GE(slice.begin, last);
      EXPECT_GE(slice.prepared, slice.begin);
      EXPECT_GE(slice.met, slice.prepared);
      EXPECT_GE(slice.done, slice.met);
      EXPECT_GE(slice.released, slice.done);
      last = slice.released;
    }
    EXPECT_EQ(times.Of(t, 0).prepared, times.Of(t, 0).begin) << "no preparation to wait for";
    EXPECT_LE(last, all);
  }
  const StepTimes::Slice early = times.Of(0, 1), late = times.Of(1, 1);
  EXPECT_GE(late.prepared - late.begin, 1.09e-3);
  EXPECT_GE(early.met, late.prepared - 1e-5) << "a barrier opens when the last has come";
}

}  // namespace
}  // namespace lucid
