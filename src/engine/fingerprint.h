// What the bits of cached keys and values depend on, as one number.
#pragma once

#include <cstdint>

#include "exec/runner.h"
#include "models/load.h"

namespace lucid {

// Changed whenever kernels give other bits for the same input.
inline constexpr uint32_t kNumericsVersion = 2;

// XXH3 over the architecture, every tensor's name, type, shape and first bytes, the kernels that
// run the plan, and the form of the cache. Equal for two copies of one file.
uint64_t CacheFingerprint(const Model& model, const Runner& runner);

}  // namespace lucid
