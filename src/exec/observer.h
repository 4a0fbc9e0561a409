// Observer: what wants to look at a running step: traces, taps of hidden states, timings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/args.h"
#include "plan/op_table.h"
#include "plan/plan.h"

namespace lucid {

struct ObservedOp {
  const Plan& plan;  // the plan that runs (fused or not)
  const Op& op;
  std::string_view kernel;  // name of the kernel that ran it
  const StepView& step;
  const void* args = nullptr;  // the kernel's operands: the struct of args.h that bind.cc made
  int64_t nanoseconds = 0;     // wall time from the barrier before to the barrier after
  // Values of an output or an input of the op, [rows, width], valid during the call.
  std::span<const float> (*read)(const void* runner, Value v) = nullptr;
  const void* runner = nullptr;

  std::span<const float> Read(Value v) const { return read(runner, v); }
};

// How many experts the step read the matrices of; nothing for ops that read none.
std::optional<int64_t> TouchedExperts(const ObservedOp& observed);

// What the op cost in this step: the op table's numbers, experts as they were touched.
Cost ExecutedCost(const ObservedOp& observed, Workload work);

class Observer {
 public:
  virtual ~Observer() = default;
  // Called on one thread after each op, while the others wait.
  virtual void AfterOp(const ObservedOp& observed) = 0;
};

}  // namespace lucid
