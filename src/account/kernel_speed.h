// MeasureKernels: what Lucid's own kernels make of this machine, measured on a small model of a few
// layers with made-up weights of one type: how fast they stream and multiply them, and what all
// that is no product takes. So a prediction knows the engine and not only the machine (predict.h).
#pragma once

#include "account/machine.h"
#include "base/result.h"
#include "exec/runner.h"
#include "tensor/dtype.h"

namespace lucid {

// Takes about a second and 600 MB. `weights`: a type that weights can have. kCapacity.
// `bytes`: of all its weights at least; no cache should hold them.
inline constexpr int64_t kProbeBytes = 280'000'000;
Result<KernelSpeed> MeasureKernels(DType weights, Numerics numerics, int threads,
                                   int64_t bytes = kProbeBytes);

}  // namespace lucid
