// How fast a model could run on a machine at most: what its plan must read and multiply, over what
// the machine can read and multiply. machine.h has those numbers.
//
// A step takes at least max(bytes / bandwidth, multiply-adds / peak). Bytes are the weights that
// the step uses, each once however many sequences share it (the output matrix once, of the
// embedding the rows of its tokens), and the keys and values that its tokens attend to.
// Multiply-adds are those of matrices and of attention under a causal mask. Whatever else a step
// does may overlap with the rest, so no engine is faster, and one that reaches the limit wastes
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "account/machine.h"
#include "base/result.h"
#include "plan/op_table.h"
#include "plan/plan.h"

namespace lucid {

struct StepNeeds {
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;  // of keys and values that are read
  int64_t macs = 0;      // multiply-adds of matrices and attention
};
StepNeeds NeedsOf(const Plan& plan, const Workload& work);

// Bytes of weights that a step of one token of one sequence reads.
int64_t TokenBytes(const Plan& plan, std::span<const DType> weight_dtypes);
// The same of a model file; errors as LoadModel.
Result<int64_t> TokenBytesOfModel(const std::string& path);

// What kernels multiply, from the most bits to the fewest. Pairs: activations of 16 bits, each of
// which takes two products of 8.
enum class Factors : int8_t { kFloat32, kBfloat16, kInt8Pairs, kInt8 };

// The fastest arithmetic of so many threads whose factors have the bits of `least` or more.
struct ArithmeticPeak {
  double macs_per_second = 0;
  std::string unit;  // "bfloat16 avx512bf16", "int8 x 2 avx512vnni"
};
std::optional<ArithmeticPeak> BestArithmetic(std::span<const ComputePeak> peaks, int threads,
                                             Factors least);

struct MachineSpeed {
  double bytes_per_second = 0;
  double macs_per_second = 0;
};

// `needs` is of the whole prompt, or of a generation's step on average.
struct SpeedLimit {
  double tokens_per_second = 0;  // of all sequences together
  bool by_memory = false;        // else by arithmetic
  StepNeeds needs;
};

// Computing `work` (its sequences are the prompt's tokens) as if in one step.
SpeedLimit PromptLimit(const Plan& plan, const Workload& work, const MachineSpeed& speed);

// `n_steps` steps after each other, in each of which every sequence of `first`, the first step,
// brings one token; later steps begin that much further on.
SpeedLimit GenerationLimit(const Plan& plan, const Workload& first, int64_t n_steps,
                           const MachineSpeed& speed);

}  // namespace lucid
