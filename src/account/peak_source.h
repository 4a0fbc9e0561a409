// PeakSource: what a limit or a prediction needs to know of this machine, from what `lucid limits`
// stored, or measured on the spot where that lacks it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "account/hardware.h"
#include "account/ledger.h"
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
  // `why`: why there is no more in `machine`, said before the first measurement. `path`: where what
  // is measured of kernels is stored; empty: nowhere.
  PeakSource(Machine machine, std::string why, Say say, std::string path = "")
      : machine_(std::move(machine)),
        why_(std::move(why)),
        say_(std::move(say)),
        path_(std::move(path)) {}
  // With what MachinePath() holds, if that is of this machine.
  static PeakSource Open(Say say);

  // How fast so many threads read a buffer of that size again and again; MeasureRead's errors.
  Result<ReadSpeed> Read(int64_t bytes, int threads);
  // What the kernels make of it. Measured where no figures of this build are stored, and stored
  // beside the machine's unless other processes were in the way. MeasureKernels' errors.
  Result<KernelSpeed> Kernels(DType weights, Numerics numerics, const std::string& isa,
                              int threads);
  // This machine, without the speeds of kernels; MeasureRead's errors.
  Result<Hardware> ThisMachine(int threads, int64_t bytes, bool eight_bits);
  // The same as a prediction for a model takes it, with the kernels of the types that most of its
  // weights have: `token_bytes` are read for a token. Errors of the two above.
  Result<Hardware> MachineFor(std::span<const LedgerWeight> weights, int64_t token_bytes,
                              Numerics numerics, const std::string& isa, int threads);
  // Seconds of a barrier of so many threads; 0: not stored.
  double BarrierSeconds(int threads) const;
  // As BestArithmetic.
  ArithmeticPeak Arithmetic(int threads, Factors least);
  // Of the stored figures, or of what was measured here, whichever was worse (machine.h).
  double disturbance() const { return Disturbance(machine_); }

 private:
  void Announce(const std::string& measurement);
  void NoteDisturbance(double steal, double others);
  void StoreKernels(const KernelSpeed& speed);

  Machine machine_;  // grows by what is measured
  std::string why_;
  Say say_;
  std::string path_;
};

}  // namespace lucid
