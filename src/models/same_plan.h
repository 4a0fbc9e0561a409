// CheckSamePlan: whether two plans compute the same. Used by gguf_export.cc: the plan of a folder
// and that of the file which it becomes.
#pragma once

#include "base/result.h"
#include "plan/plan.h"

namespace lucid {

// Same ops with the same operands and attributes: whole numbers equal, others within 1e-5 of each
// other. Rotations are compared by their frequencies; which pairs are rotated may differ.
// kUnsupported names the first op that differs.
Status CheckSamePlan(const Plan& folder, const Plan& file);

}  // namespace lucid
