// RopeOverrides: what a user changes of a model's rotations when it is loaded. The fields are the
// flags of llama.cpp (--rope-scaling, --rope-scale, ...), which people know; ntk is not among its
// kinds, whose users work out --rope-freq-base by hand.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "plan/rope_spec.h"

namespace lucid {

struct RopeOverrides {
  std::optional<RopeSpec::Scaling> scaling = {};  // kNone, kLinear, kNtk or kYarn
  double scale = 0;           // the context grows by this factor; 0: as the model says
  double freq_base = 0;       // theta; 0: as the model says
  double freq_scale = 0;      // 1 / scale; 0: as the model says
  int64_t yarn_orig_ctx = 0;  // 0: what the model was trained for
  // Below 0: as the model says.
  double yarn_ext_factor = -1;
  double yarn_attn_factor = -1;  // times what YaRN takes for the scale
  double yarn_beta_slow = -1;
  double yarn_beta_fast = -1;

  bool operator==(const RopeOverrides&) const = default;
};

// The rotations that follow, for a model trained for `context_length` positions. Without a scaling
// a scale is linear, or of the model's own kind where that is linear, ntk or yarn; without a scale
// a scaling takes over the factor of another of these, else it is 1. A scaling replaces divisors,
// too. kInvalidArgument names the option that does not go with the others.
Result<RopeSpec> Override(const RopeSpec& spec, const RopeOverrides& overrides,
                          int64_t context_length);

}  // namespace lucid
