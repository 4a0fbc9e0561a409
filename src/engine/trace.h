// Trace: what a step executed, op by op: operands with symbolic and concrete shapes, dtypes,
// kernel, cost and time.
//
// The same plan that runs is what is printed, so a trace cannot disagree with the execution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "exec/observer.h"
#include "kv/kv_layout.h"
#include "models/weights.h"
#include "plan/op_table.h"

namespace lucid {

struct TracedOperand {
  std::string role;  // "x", "w", "kv" as the op table calls it; "out" for results
  std::string name;
  std::string dtype;     // "F32", "Q4_K", "I32"; a cache as "F16/F16"
  std::string symbolic;  // "[T, 9, 64]"
  std::string concrete;  // "[12, 9, 64]"
};

struct TracedOp {
  std::string name;
  std::string kind;
  std::string kernel;
  std::string attributes;
  std::vector<TracedOperand> inputs, outputs;
  bool idle = false;  // of a form that is for tokens of the other phase, and the step had none
  Cost cost;
  int64_t nanoseconds = 0;
};

class TraceRecorder final : public Observer {
 public:
  // `weights` gives the stored dtypes, `kv` those of the cache. Both must outlive the recorder.
  TraceRecorder(const Weights& weights, const KvOptions& kv) : weights_(weights), kv_(kv) {}

  void AfterOp(const ObservedOp& observed) override;
  const std::vector<TracedOp>& ops() const { return ops_; }
  void Clear() { ops_.clear(); }

 private:
  const Weights& weights_;
  const KvOptions& kv_;
  std::vector<TracedOp> ops_;
};

std::string PrintTrace(const std::vector<TracedOp>& ops);
nlohmann::ordered_json TraceJson(const std::vector<TracedOp>& ops);

}  // namespace lucid
