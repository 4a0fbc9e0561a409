// The text of a plan: golden files, `lucid trace`, error messages. One line per op, operands with
// names and shapes.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace lucid {

// "blk.0.attn_q  linear  x=blk.0.attn_norm[T, 64] w=blk.0.attn_q[64, 64] -> blk.0.attn_q[T, 64]",
// one line per op.
std::string PrintPlan(const Plan& plan);

// The line of one op.
std::string PrintOp(const Plan& plan, const Op& op);

// The attributes of an op as "eps=1e-05", for dumps; empty if it has none.
std::string PrintAttrs(const Op& op);

// What the op table calls each of the op's inputs: "x", "w"; as many as there are inputs.
std::vector<std::string> InputRoles(const Op& op);

}  // namespace lucid
