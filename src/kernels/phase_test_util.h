// Helpers of the tests of linears whose rows of prompts go a way of their own
// (cpu/prompt_linear-inl.h).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "kernels/kernel_test_util.h"
#include "kernels/packed.h"

namespace lucid::testing_util {

inline std::vector<DType> QuantisedPackedTypes() {
  std::vector<DType> types;
  for (const DTypeInfo& info : AllDTypes()) {
    const PackedForm* form = FindPackedForm(info.type);
    if (form != nullptr && !form->plain()) types.push_back(info.type);
  }
  return types;
}

// The first kernel of `table` alone that takes the operands.
inline const Kernel& KernelFrom(const KernelTable& table, KernelOp op, const void* args) {
  for (const Kernel& kernel : table.kernels) {
    if (kernel.op == op && (kernel.refuse == nullptr || kernel.refuse(args) == nullptr)) {
      return kernel;
    }
  }
  ADD_FAILURE() << table.isa << " has no kernel for " << Name(op);
  return table.kernels.front();
}

// A packed matrix, rows to meet it and a place for what comes out.
struct PhasedCase {
  Weights w;
  std::vector<std::byte> packed;
  std::vector<float> x, bias, y;
  LinearArgs args;
  PhasedCase(DType type, int64_t n_out, int64_t n_in, int64_t rows, bool with_bias) {
    w = RandomWeights(type, n_out, n_in, static_cast<uint32_t>(n_out + n_in));
    Pack();
    x = RandomFloats(static_cast<size_t>(rows * n_in), 7);
    bias = RandomFloats(static_cast<size_t>(n_out), 8);
    y.assign(static_cast<size_t>(rows * n_out), NAN);
    args.w = w.tensor;
    args.packed = packed.data();
    args.bias = with_bias ? bias.data() : nullptr;
    args.x = x.data();
    args.y = y.data();
  }
  // Anew, after a change of w.
  void Pack() {
    packed.resize(static_cast<size_t>(PackedBytes(w.tensor)));
    PackStrips(w.tensor, 0, (w.tensor.rows() + kStripRows - 1) / kStripRows, packed.data());
  }
  std::vector<float> Run(const KernelTable& table, const StepView& step, int threads) {
    std::fill(y.begin(), y.end(), NAN);
    RunAs(KernelFrom(table, KernelOp::kLinear, &args), &args, step, threads);
    return {y.begin(), y.begin() + step.n_tokens * w.tensor.rows()};
  }
  // Every row on its own.
  std::vector<float> RunRows(const KernelTable& table, const StepView& step) {
    std::vector<float> all;
    const float* const first = args.x;
    for (int32_t r = 0; r < step.n_tokens; ++r) {
      args.x = first + r * w.tensor.cols();
      StepView one = TokensStep(1);
      one.phases = step.phases + r;
      const std::vector<float> row = Run(table, one, 1);
      all.insert(all.end(), row.begin(), row.end());
    }
    args.x = first;
    return all;
  }
  // By the slow kernel, from the weights as they lie in the file.
  std::vector<float> Reference(int32_t rows) {
    LinearArgs plain = args;
    plain.packed = nullptr;
    std::fill(y.begin(), y.end(), NAN);
    RunAs(KernelOf("reference", KernelOp::kLinear, &plain), &plain, TokensStep(rows), 1);
    return {y.begin(), y.begin() + rows * w.tensor.rows()};
  }
};

struct PhasedStep {
  std::vector<Phase> phases;
  StepView view;
  // `pattern`: 'p' and 'g' over and over.
  PhasedStep(int32_t n, std::string_view pattern) {
    for (int32_t i = 0; i < n; ++i) {
      const char c = pattern[static_cast<size_t>(i) % pattern.size()];
      phases.push_back(c == 'p' ? Phase::kPrompt : Phase::kGenerated);
    }
    view = TokensStep(n);
    view.phases = phases.data();
  }
};

}  // namespace lucid::testing_util
