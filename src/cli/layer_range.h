// --layers of the commands that draw a plan.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace lucid::cli {

// "3" or "3-7" as first and last. kInvalidArgument for anything else.
Result<std::pair<int32_t, int32_t>> ParseLayers(const std::string& text);

}  // namespace lucid::cli
