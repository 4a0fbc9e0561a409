// Which kernels run a model, and which could not: for `lucid bench -v` and `lucid limits
// --dispatch`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "account/limit.h"
#include "base/result.h"
#include "exec/runner.h"
#include "models/weights.h"

namespace lucid {

// The matrices of one name, type and size in all layers.
struct MatrixKernel {
  std::string name;   // "blk.*.attn_q"
  std::string dtype;  // "Q4_K"
  int64_t n_out = 0, n_in = 0;
  int64_t count = 0;    // of layers
  std::string kernel;   // "linear.avx512"
  std::string refused;  // better kernels that did not take it, and why
};
// In the order in which a step uses them.
std::vector<MatrixKernel> MatrixKernels(const Runner& runner, const Weights& weights);

// The other ops of one kind that the same kernel runs.
struct OpKernel {
  std::string op;       // "attention"
  int64_t count = 0;    // in a step
  std::string kernel;   // "attention.avx512bf16"
  std::string refused;  // as above
};
// In the order in which a step first uses them.
std::vector<OpKernel> OpKernels(const Runner& runner);

// What the bound kernels multiply in most of a step's products of matrices: 8-bit integers where a
// quantised matrix is packed (bfloat16 where prompts go to tiles of AMX), bfloat16 pairs where
// kernels of such a CPU have a packed BF16 one, and else float32.
Factors FactorsOf(const Runner& runner, const Weights& weights, const Workload& work,
                  bool of_prompt);

struct IsaStatus {
  std::string isa;
  std::string ops;      // that it has kernels for, if they run: "attention, rope"
  std::string needs;    // of the CPU, as /proc/cpuinfo names it
  std::string refused;  // why its kernels do not run; empty if they do
};
// Every instruction set that the build has kernels for, best first, under the ceiling `isa` ("" or
// "auto": none). kInvalidArgument as SelectTables.
Result<std::vector<IsaStatus>> Dispatch(std::string_view isa);

}  // namespace lucid
