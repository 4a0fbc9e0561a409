#include "plan/rope_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "base/check.h"

namespace lucid {
namespace {

// Llama 3.1: wavelengths above original / low are stretched, below original / high kept, blended
// between.
double Llama3(const RopeSpec& spec, double freq) {
  const double wavelength = 2.0 * std::numbers::pi / freq;
  if (wavelength > spec.original_context / spec.low_freq_factor) return freq / spec.factor;
  if (wavelength <= spec.original_context / spec.high_freq_factor) return freq;
  const double keep = (spec.original_context / wavelength - spec.low_freq_factor) /
                      (spec.high_freq_factor - spec.low_freq_factor);
  return (1.0 - keep) * freq / spec.factor + keep * freq;
}

// Where YaRN's ramp lies: pairs below `low` keep their frequency, above `high` are stretched.
struct Ramp {
  double low, high;
};
Ramp YarnRamp(const RopeSpec& spec) {
  const auto dim = static_cast<double>(spec.rotary_dim);
  // The pair that turns `turns` times within the original context.
  const auto pair_of = [&](double turns) {
    return dim * std::log(spec.original_context / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(spec.theta));
  };
  Ramp ramp{pair_of(spec.beta_fast), pair_of(spec.beta_slow)};
  if (spec.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, dim - 1.0)};
  if (ramp.low == ramp.high) ramp.high += 0.001;  // as the published code: no division by zero
  return ramp;
}

double Yarn(const RopeSpec& spec, const Ramp& ramp, int64_t pair, double freq) {
  const double at =
      std::clamp((static_cast<double>(pair) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  const double keep = (1.0 - at) * spec.ext_factor;
  return freq / spec.factor * (1.0 - keep) + freq * keep;
}

double Theta(const RopeSpec& spec, int64_t length) {
  const auto dim = static_cast<double>(spec.rotary_dim);
  double stretch = 1.0;
  if (spec.scaling == RopeSpec::Scaling::kNtk) stretch = spec.factor;
  if (spec.scaling == RopeSpec::Scaling::kDynamic) {
    const double ratio = std::max(static_cast<double>(length) / spec.original_context, 1.0);
    stretch = spec.factor * ratio - (spec.factor - 1.0);
  }
  return dim > 2 ? spec.theta * std::pow(stretch, dim / (dim - 2.0)) : spec.theta;
}

}  // namespace

std::string_view Name(RopeSpec::Scaling scaling) {
  switch (scaling) {
    case RopeSpec::Scaling::kNone:
      return "none";
    case RopeSpec::Scaling::kLinear:
      return "linear";
    case RopeSpec::Scaling::kNtk:
      return "ntk";
    case RopeSpec::Scaling::kDynamic:
      return "dynamic";
    case RopeSpec::Scaling::kYarn:
      return "yarn";
    case RopeSpec::Scaling::kLlama3:
      return "llama3";
    case RopeSpec::Scaling::kLongRope:
      return "longrope";
  }
  return "?";
}

std::vector<float> InverseFrequencies(const RopeSpec& spec, int64_t length) {
  const int64_t n = spec.rotary_dim / 2;
  std::span<const float> divisors = spec.divisors;
  if (spec.scaling == RopeSpec::Scaling::kLongRope) {
    const bool is_long = static_cast<double>(length) > spec.original_context;
    divisors = is_long ? spec.long_factors : spec.short_factors;
  }
  LUCID_CHECK(divisors.empty() || static_cast<int64_t>(divisors.size()) == n);
  const double theta = Theta(spec, length);
  const Ramp ramp = spec.scaling == RopeSpec::Scaling::kYarn ? YarnRamp(spec) : Ramp{0, 0};
  std::vector<float> table(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    double freq =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(spec.rotary_dim));
    if (!divisors.empty()) freq /= divisors[static_cast<size_t>(i)];
    if (spec.scaling == RopeSpec::Scaling::kLinear) freq /= spec.factor;
    if (spec.scaling == RopeSpec::Scaling::kLlama3) freq = Llama3(spec, freq);
    if (spec.scaling == RopeSpec::Scaling::kYarn) freq = Yarn(spec, ramp, i, freq);
    table[static_cast<size_t>(i)] = static_cast<float>(freq);
  }
  return table;
}

double YarnAttnFactor(double factor, double mscale) {
  return factor > 1.0 ? 0.1 * mscale * std::log(factor) + 1.0 : 1.0;
}

double YarnAttnFactor(const RopeSpec& spec) {
  return spec.ext_factor == 0 ? 1.0 : YarnAttnFactor(spec.factor);
}

namespace {

// What the scaling rule has beside a factor and a context.
std::string DescribeRule(const RopeSpec& spec) {
  std::string text;
  if (spec.scaling == RopeSpec::Scaling::kLlama3) {
    text +=
        fmt::format(", frequency factors {} and {}", spec.low_freq_factor, spec.high_freq_factor);
  }
  if (spec.scaling != RopeSpec::Scaling::kYarn) return text;
  if (spec.beta_fast != 32.0 || spec.beta_slow != 1.0) {
    text += fmt::format(", betas {} and {}", spec.beta_fast, spec.beta_slow);
  }
  if (spec.ext_factor != 1.0) text += fmt::format(", ext factor {}", spec.ext_factor);
  if (!spec.truncate) text += ", ramp not rounded";
  return text;
}

// The bands that divisors make: how many frequencies stay, are blended, and are fully divided.
std::string DescribeDivisors(std::span<const float> divisors) {
  const float largest = *std::ranges::max_element(divisors);
  const auto kept = std::ranges::count(divisors, 1.0f);
  const auto full = largest == 1.0f ? 0 : std::ranges::count(divisors, largest);
  return fmt::format(
      ", divided by the file's rope_freqs: {} frequencies by 1, {} by {}, {} between", kept, full,
      largest, std::ssize(divisors) - kept - full);
}

}  // namespace

std::string Describe(const RopeSpec& spec, int64_t head_dim) {
  std::string text = fmt::format("theta {}, ", spec.theta);
  text += spec.rotary_dim == head_dim
              ? fmt::format("{} dimensions", head_dim)
              : fmt::format("{} of {} dimensions", spec.rotary_dim, head_dim);
  if (!spec.divisors.empty()) text += DescribeDivisors(spec.divisors);
  if (spec.scaling != RopeSpec::Scaling::kNone) text += fmt::format(", {}", Name(spec.scaling));
  const bool by_factor =
      spec.scaling != RopeSpec::Scaling::kNone && spec.scaling != RopeSpec::Scaling::kLongRope;
  if (by_factor) text += fmt::format(" by {}", spec.factor);
  if (spec.scaling != RopeSpec::Scaling::kNone && spec.scaling != RopeSpec::Scaling::kLinear &&
      spec.scaling != RopeSpec::Scaling::kNtk) {
    text += fmt::format(" from {}", spec.original_context);
  }
  text += DescribeRule(spec);
  if (spec.attn_factor != 1.0) text += fmt::format(", attention factor {:.6g}", spec.attn_factor);
  return text;
}

std::vector<float> AlibiSlopes(int64_t n_heads, double max_bias, double factor) {
  int64_t n = 1;
  while (2 * n <= n_heads) n *= 2;
  std::vector<float> slopes(static_cast<size_t>(n_heads));
  for (int64_t h = 0; h < n_heads; ++h) {
    const double power = h < n ? static_cast<double>(h + 1) : static_cast<double>(h - n) + 0.5;
    slopes[static_cast<size_t>(h)] =
        static_cast<float>(std::exp2(-max_bias / static_cast<double>(n) * power) * factor);
  }
  return slopes;
}

}  // namespace lucid
