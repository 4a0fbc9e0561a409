// KeyRotations: how the keys that a plan stores were rotated, for eviction policies that move keys
// to other positions (kv/eviction.h).
#pragma once

#include <vector>

#include "kv/eviction.h"
#include "plan/plan.h"

namespace lucid {

// By KV layer: the rotation that its keys last went through before they were stored; empty where
// there was none. `plan` may be fused or not.
std::vector<KeyRotation> KeyRotations(const Plan& plan);

}  // namespace lucid
