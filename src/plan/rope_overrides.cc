#include "plan/rope_overrides.h"

#include <cmath>

namespace lucid {
namespace {

using Scaling = RopeSpec::Scaling;

// Whether another of these kinds can take over the factor: by it the context grows.
bool HasGrowth(Scaling scaling) {
  return scaling == Scaling::kLinear || scaling == Scaling::kNtk || scaling == Scaling::kYarn;
}

Result<double> Factor(const RopeSpec& spec, Scaling scaling, const RopeOverrides& o) {
  if (o.scale != 0 && o.freq_scale != 0) {
    return Err(ErrorCode::kInvalidArgument,
               "--rope-scale and --rope-freq-scale say the same thing");
  }
  const double factor = o.scale != 0 ? o.scale : o.freq_scale != 0 ? 1.0 / o.freq_scale : 0;
  if (factor == 0) {
    const bool kept = scaling == spec.scaling || (HasGrowth(scaling) && HasGrowth(spec.scaling));
    return kept ? spec.factor : 1.0;
  }
  if (!(factor > 0) || !std::isfinite(factor)) {
    return Err(ErrorCode::kInvalidArgument, "a rope scale of {} is not positive", factor);
  }
  return factor;
}

Result<Scaling> Kind(const RopeSpec& spec, const RopeOverrides& o) {
  if (o.scaling) return *o.scaling;
  if (o.scale == 0 && o.freq_scale == 0) return spec.scaling;
  const std::string_view own = spec.divisors.empty() ? Name(spec.scaling) : "its file's rope_freqs";
  if (spec.divisors.empty()) {
    if (spec.scaling == Scaling::kNone) return Scaling::kLinear;
    if (HasGrowth(spec.scaling)) return spec.scaling;
  }
  return Err(
      ErrorCode::kInvalidArgument,
      "the model scales its positions by {}; a rope scale needs --rope-scaling none, linear, "
      "ntk or yarn instead",
      own);
}

bool AnyYarn(const RopeOverrides& o) {
  return o.yarn_orig_ctx != 0 || o.yarn_ext_factor >= 0 || o.yarn_attn_factor >= 0 ||
         o.yarn_beta_slow >= 0 || o.yarn_beta_fast >= 0;
}

Status CheckYarn(const RopeSpec& spec) {
  if (!(spec.beta_fast > spec.beta_slow && spec.beta_slow > 0)) {
    return Err(ErrorCode::kInvalidArgument,
               "--yarn-beta-fast must be above --yarn-beta-slow: they are {} and {}",
               spec.beta_fast, spec.beta_slow);
  }
  if (!(spec.theta > 1)) {
    return Err(ErrorCode::kInvalidArgument,
               "--rope-scaling yarn needs a base of the frequencies above 1, and --rope-freq-base "
               "is {}",
               spec.theta);
  }
  return {};
}

}  // namespace

Result<RopeSpec> Override(const RopeSpec& spec, const RopeOverrides& o, int64_t context_length) {
  RopeSpec result = spec;
  if (o.freq_base != 0) result.theta = o.freq_base;
  LUCID_ASSIGN_OR_RETURN(result.scaling, Kind(spec, o));
  LUCID_ASSIGN_OR_RETURN(result.factor, Factor(spec, result.scaling, o));
  if (result.scaling != Scaling::kYarn && AnyYarn(o)) {
    return Err(ErrorCode::kInvalidArgument, "--yarn options need --rope-scaling yarn");
  }
  if (o.scaling) result.divisors.clear();  // another way to scale takes their place
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
  if (o.yarn_attn_factor >= 0 || result.factor != spec.factor || result.scaling != spec.scaling ||
      (result.ext_factor == 0) != (spec.ext_factor == 0)) {
    result.attn_factor =
        YarnAttnFactor(result) * (o.yarn_attn_factor >= 0 ? o.yarn_attn_factor : 1.0);
  }
  LUCID_RETURN_IF_ERROR(CheckYarn(result));
  return result;
}

}  // namespace lucid
