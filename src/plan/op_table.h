// The op table: one row per kind of op with its shape rule and its cost. Passes, printing and
// accounting read only this.
//
// Adding an op: a kind and attributes in op.h, functions in ops/<family>.cc, a row in op_table.cc,
// a Builder method, and a reference kernel (CONTRIBUTING.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "tensor/dtype.h"
#include "tensor/kv_type.h"

namespace lucid {

// What one step is asked to do, for costs. Each sequence brings `count` tokens at positions start,
// start + 1, ...
struct SequenceSpan {
  int64_t start = 0;
  int64_t count = 0;
};
struct Workload {
  std::vector<SequenceSpan> sequences;
  int64_t outputs = 0;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  int64_t kv_block_size = 32;            // positions; kivi2 packs whole blocks
  std::span<const DType> weight_dtypes;  // by value id
  // False: every query counts with every key of its sequence that a window leaves, as papers count
  // attention (the full square of a prompt).
  bool causal = true;
  // Experts whose matrices the step read, where it has run and the op that is asked about reads
  // some (exec/observer.h counts them); else what an even spread touches on average.
  std::optional<int64_t> touched_experts = {};

  Sizes sizes() const;
  // Costs take a single token behind others for one that the model made, all others for given ones.
  static bool IsGenerated(const SequenceSpan& span);
  Workload OfPhase(Phase phase) const;  // the sequences whose tokens are of this phase
  // Query-key pairs of all tokens with this window (0: none), under a causal mask if `causal`.
  int64_t AttendedPairs(int64_t window) const;
  // Keys that must be read at least once: per sequence, those any of its tokens attends to.
  int64_t KeysRead(int64_t window) const;
};

// What an op costs: arithmetic (a multiply-add counts 2) and bytes moved, each operand once.
struct Cost {
  int64_t flops = 0;
  int64_t macs = 0;  // multiply-adds of matrices and attention among the flops
  int64_t weight_bytes = 0;
  int64_t kv_read_bytes = 0;
  int64_t kv_write_bytes = 0;
  int64_t activation_bytes = 0;

  Cost& operator+=(const Cost& other);
};

struct OpInfo {
  OpKind kind;
  std::string_view name;  // "linear"
  std::string_view
      operands;  // names of the inputs, for dumps: "x w bias?"; '?' marks optional, '*' repeats
  std::string_view formula;  // of what it gives, in words and signs: "x W^T (+ bias)"
  // Shapes of the outputs from the inputs and attributes; the error says which operand does not
  // fit.
  Result<std::vector<Shape>> (*infer)(const Plan& plan, const Op& op);
  Cost (*cost)(const Plan& plan, const Op& op, const Workload& work);
};

const OpInfo& Info(OpKind kind);

// Whether the op computes the rows of tokens of this phase; others it leaves as they are.
bool Computes(const Op& op, Phase phase);

}  // namespace lucid
