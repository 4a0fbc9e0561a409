// PeakSource: the two numbers of a limit, from the machine that `lucid limits` stored, or measured
// on the spot where it did not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "account/hardware.h"
#include "account/limit.h"
#include "account/machine.h"
#include "base/result.h"
#include "exec/runner.h"
#include "tensor/dtype.h"

namespace lucid {

class PeakSource {
 public:
  // `say` is told of what is measured now, and why; it may be empty.
  using Say = std::function<void(const std::string& message)>;
  // `why`: why there is no more in `machine`, said before the first measurement.
  PeakSource(Machine machine, std::string why, Say say)
      : machine_(std::move(machine)), why_(std::move(why)), say_(std::move(say)) {}
  // With what MachinePath() holds, if that is of this machine.
  static PeakSource Open(Say say);

  // How fast so many threads read a buffer of that size again and again; MeasureRead's errors.
  Result<ReadSpeed> Read(int64_t bytes, int threads);
  // This machine as a prediction takes it, without the speeds of kernels; MeasureRead's errors.
  Result<Hardware> ThisMachine(int threads, int64_t bytes, bool eight_bits);
  // What the kernels make of it; MeasureKernels' errors.
  Result<KernelSpeed> Kernels(DType weights, Numerics numerics, int threads);
  // As BestArithmetic.
  ArithmeticPeak Arithmetic(int threads, Factors least);
  // Of the stored figures, or of what was measured here, whichever was worse (machine.h).
  double disturbance() const { return Disturbance(machine_); }

 private:
  void Announce(const std::string& measurement);
  void NoteDisturbance(double steal, double others);

  Machine machine_;  // grows by what is measured
  std::string why_;
  Say say_;
};

}  // namespace lucid
