#include "exec/step_times.h"

#include <algorithm>

namespace lucid {

void StepTimes::Reserve(int n_threads, size_t n_ops) {
  threads_.resize(std::max(static_cast<size_t>(n_threads), threads_.size()));
  for (Thread& thread : threads_) thread.marks.resize(std::max(n_ops, thread.marks.size()));
}

StepTimes::Writer StepTimes::Of(int thread) {
  return Writer(threads_[static_cast<size_t>(thread)]);
}

void StepTimes::BeginStep(int n_threads, size_t n_ops, const StepView& step) {
  Reserve(n_threads, n_ops);
  n_threads_ = n_threads;
  n_ops_ = n_ops;
  step_ = step;
  begin_ = Clock::now();
  begin_ticks_ = ReadTicks();
}

void StepTimes::EndStep(const PoolUsage& usage) {
  const int64_t ticks = ReadTicks() - begin_ticks_;
  end_ = Clock::now();
  usage_ = usage;
  tick_seconds_ = std::chrono::duration<double>(end_ - begin_).count() /
                  static_cast<double>(std::max<int64_t>(ticks, 1));
}

StepTimes::Slice StepTimes::Of(int thread, size_t op) const {
  const Thread& of = threads_[static_cast<size_t>(thread)];
  const Marks& marks = of.marks[op];
  const int64_t begin = op == 0 ? of.begin : of.marks[op - 1].released;
  return {.begin = Seconds(begin - begin_ticks_),
          .prepared = Seconds(marks.prepared - begin_ticks_),
          .met = Seconds(marks.met - begin_ticks_),
          .done = Seconds(marks.done - begin_ticks_),
          .released = Seconds(marks.released - begin_ticks_)};
}

StepTimes::OpSeconds StepTimes::Op(size_t op) const {
  OpSeconds sum;
  for (int t = 0; t < n_threads_; ++t) {
    const Slice slice = Of(t, op);
    sum.work += slice.prepared - slice.begin + slice.done - slice.met;
    sum.wait += slice.met - slice.prepared + slice.released - slice.done;
  }
  return {sum.work / n_threads_, sum.wait / n_threads_};
}

}  // namespace lucid
