#include "plan/rope_overrides.h"

#include <cmath>

namespace lucid {
namespace {

using Scaling = RopeSpec::Scaling;

Result<double> Factor(const RopeSpec& spec, const RopeOverrides& o) {
  if (o.scale != 0 && o.freq_scale != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "--rope-scale and --rope-freq-scale say the same thing");
  }
  const double factor = o.scale != 0 ? o.scale : o.freq_scale != 0 ? 1.0 / o.freq_scale : 0;
  if (factor == 0) return spec.factor;
  if (!(factor > 0) || !std::isfinite(factor)) {
    return Err(ErrorCode::kInvalidArgument, "a rope scale of {} is not positive", factor);
  }
  return factor;
}

Result<Scaling> Kind(const RopeSpec& spec, const RopeOverrides& o) {
  if (o.scaling) return *o.scaling;
  if (o.scale == 0 && o.freq_scale == 0) return spec.scaling;
  if (spec.scaling == Scaling::kNone) return Scaling::kLinear;
  if (spec.scaling == Scaling::kLinear || spec.scaling == Scaling::kYarn) return spec.scaling;
  return Err(ErrorCode::kInvalidArgument,
             "the model scales its positions by {}; a rope scale needs --rope-scaling none, linear "
             "or yarn instead",
             Name(spec.scaling));
}

bool AnyYarn(const RopeOverrides& o) {
  return o.yarn_orig_ctx != 0 || o.yarn_ext_factor >= 0 || o.yarn_attn_factor >= 0 ||
         o.yarn_beta_slow >= 0 || o.yarn_beta_fast >= 0;
}

}  // namespace

Result<RopeSpec> Override(const RopeSpec& spec, const RopeOverrides& o, int64_t context_length) {
  RopeSpec result = spec;
  if (o.freq_base != 0) result.theta = o.freq_base;
  LUCID_ASSIGN_OR_RETURN(result.scaling, Kind(spec, o));
  LUCID_ASSIGN_OR_RETURN(result.factor, Factor(spec, o));
  if (result.scaling != Scaling::kYarn && AnyYarn(o)) {
    return Err(ErrorCode::kInvalidArgument, "--yarn options need --rope-scaling yarn");
  }
  if (result.scaling != spec.scaling) {
    result.original_context = static_cast<double>(context_length);
    result.attn_factor = 1.0;
  }
  if (result.scaling == Scaling::kNone) result.factor = 1.0;
  if (result.scaling != Scaling::kYarn) return result;
  if (o.yarn_orig_ctx > 0) result.original_context = static_cast<double>(o.yarn_orig_ctx);
  if (o.yarn_ext_factor >= 0) result.ext_factor = o.yarn_ext_factor;
  if (o.yarn_beta_slow >= 0) result.beta_slow = o.yarn_beta_slow;
  if (o.yarn_beta_fast >= 0) result.beta_fast = o.yarn_beta_fast;
  // What the model's own factor was made of is not known any more, but that it stays what it is for
  // the scale it was made for.
  if (o.yarn_attn_factor >= 0 || result.factor != spec.factor || result.scaling != spec.scaling) {
    result.attn_factor =
        YarnAttnFactor(result.factor) * (o.yarn_attn_factor >= 0 ? o.yarn_attn_factor : 1.0);
  }
  return result;
}

}  // namespace lucid
