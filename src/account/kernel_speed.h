// MeasureKernels: what Lucid's own kernels make of this machine, measured on a small model of a few
// layers with made-up weights of one type: how fast they stream and multiply them, and what all
// that is no product takes. So a prediction knows the engine and not only the machine (predict.h).
// Neighbours: machine.h keeps what was measured, peak_source.h asks for what is missing.
#pragma once

#include <string>
#include <string_view>

#include "account/machine.h"
#include "base/result.h"
#include "exec/runner.h"
#include "tensor/dtype.h"

namespace lucid {

// The model that is run. Its own values: layers as those of a few billion parameters, more of them
// than a cache holds.
struct KernelProbe {
  int64_t bytes = 280'000'000;  // of all weights at least
  int64_t dim = 2048;           // a multiple of 256
  int64_t ffn = 5632;
  int64_t prompt = 256;  // tokens
};

// Takes about a second and, with the usual probe, 600 MB. `weights`: a type that weights can have;
// `isa` as RunnerOptions. Errors: kCapacity, and those of SelectTables.
Result<KernelSpeed> MeasureKernels(DType weights, Numerics numerics, const std::string& isa,
                                   int threads, const KernelProbe& probe = {});

// What the speeds of kernels depend on beside the machine: a hash of the sources of kernels and of
// the loop that runs them, with compiler and flags. The same for the same build.
std::string_view KernelBuild();

}  // namespace lucid
