// StepTimes: when every thread of a step came to the parts of every op. Runner::Run fills one in
// where it is asked to: two readings of the CPU's counter an op and thread (four where an op has a
// part of its own that all threads meet after), no memory taken, and nothing at all otherwise.
// Neighbours: observer.h (looks at values too, and stops the threads for that), engine/profile.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "base/ticks.h"
#include "base/timer.h"
#include "kernels/args.h"

namespace lucid {

class StepTimes {
 private:
  // Ticks at which a thread ended a part of an op. The op begins where the one before it ended.
  struct Marks {
    int64_t prepared = 0;  // its share of the preparation
    int64_t met = 0;       // waiting for the others' shares; as `prepared` where nobody waits
    int64_t done = 0;      // its share of the op
    int64_t released = 0;  // waiting for the others' shares
  };
  struct alignas(64) Thread {  // on cache lines of its own
    int64_t begin = 0;
    std::vector<Marks> marks;  // by op
  };

 public:
  // Room for steps of so many threads and ops; later steps of that size take no memory.
  void Reserve(int n_threads, size_t n_ops);

  // What a thread of a running step notes.
  class Writer {
   public:
    explicit Writer(Thread& thread) : thread_(thread), marks_(thread.marks.data()) {}
    void Begin() const { thread_.begin = ReadTicks(); }
    void Prepared(size_t op) const { marks_[op].prepared = ReadTicks(); }
    void Met(size_t op) const { marks_[op].met = ReadTicks(); }
    // Instead of the two above: nobody waited.
    void NotMet(size_t op) const {
      marks_[op].prepared = marks_[op].met = op == 0 ? thread_.begin : marks_[op - 1].released;
    }
    void Done(size_t op) const { marks_[op].done = ReadTicks(); }
    void Released(size_t op) const { marks_[op].released = ReadTicks(); }

   private:
    Thread& thread_;
    Marks* marks_;
  };
  Writer Of(int thread);
  void BeginStep(int n_threads, size_t n_ops, const StepView& step);
  void EndStep(const PoolUsage& usage);

  int n_threads() const { return n_threads_; }
  size_t n_ops() const { return n_ops_; }
  // Of the batch, valid as long as that is.
  const StepView& step() const { return step_; }
  const PoolUsage& usage() const { return usage_; }
  // The step from before the threads started until all had ended.
  Clock::time_point begin() const { return begin_; }
  Clock::time_point end() const { return end_; }

  // Of an op, in seconds: means of all threads. Together they are the time from one op to the next.
  struct OpSeconds {
    double work = 0;
    double wait = 0;  // at barriers, until the last thread came
    double total() const { return work + wait; }
  };
  OpSeconds Op(size_t op) const;

  // One thread in one op, in seconds since begin().
  struct Slice {
    double begin = 0, prepared = 0, met = 0, done = 0, released = 0;
  };
  Slice Of(int thread, size_t op) const;

 private:
  double Seconds(int64_t ticks) const { return static_cast<double>(ticks) * tick_seconds_; }

  int n_threads_ = 0;
  size_t n_ops_ = 0;
  StepView step_;
  PoolUsage usage_;
  Clock::time_point begin_, end_;
  int64_t begin_ticks_ = 0;
  double tick_seconds_ = 0;
  std::vector<Thread> threads_;
};

}  // namespace lucid
