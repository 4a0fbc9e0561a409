// What a model is, in words, without loading its weights.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/rope_overrides.h"

namespace lucid {

// How the model at `path` knows positions, a line for each way ("rope, theta 10000, 64
// dimensions"). Errors as LoadModel: an architecture that this build does not have is one.
Result<std::vector<std::string>> DescribePositions(const std::string& path,
                                                   const RopeOverrides& rope);

}  // namespace lucid
