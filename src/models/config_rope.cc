// Rotations as GGUF files and config.json files describe them: ReadGgufRope and ReadHfRope of
// config_readers.h. The rules that they name are in plan/rope_spec.h.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_readers.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;
using Scaling = RopeSpec::Scaling;

void ReadYarn(GgufHparams& h, RopeSpec& rope) {
  rope.scaling = Scaling::kYarn;
  rope.ext_factor = h.FloatOr("rope.scaling.yarn_ext_factor", 1.0);
  if (rope.ext_factor < 0) rope.ext_factor = 1.0;  // llama.cpp's word for its default
  rope.beta_fast = h.FloatOr("rope.scaling.yarn_beta_fast", 32.0);
  rope.beta_slow = h.FloatOr("rope.scaling.yarn_beta_slow", 1.0);
  // llama.cpp takes the logarithm's factor by itself, and multiplies it with what the file says.
  rope.attn_factor *= YarnAttnFactor(rope) * h.FloatOr("rope.scaling.yarn_attn_factor", 1.0);
}

// Divisors that are the bands of Llama 3.1 become those, so that a file means what the folder that
// it was made of means: converters keep one number for each frequency and not the rule. The rule's
// constants are 1 and 4 in all published models, so any blended frequency tells the context; that
// all divisors follow from it is the proof. Others stay as they are.
void RecogniseBands(RopeSpec& rope) {
  if (rope.divisors.empty() || rope.scaling != Scaling::kNone || !(rope.theta > 0)) return;
  const double factor = *std::ranges::max_element(rope.divisors);
  RopeSpec bands = rope;
  bands.divisors.clear();
  const std::vector<float> plain = InverseFrequencies(bands, 1);
  bands.scaling = Scaling::kLlama3;
  bands.factor = factor;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double divisor = rope.divisors[i];
    if (!(divisor > 1.0) || !(divisor < factor)) continue;
    const double keep = (1.0 / divisor - 1.0 / factor) / (1.0 - 1.0 / factor);
    const double wavelength = 2.0 * std::numbers::pi / plain[i];
    bands.original_context =
        std::round(wavelength * (bands.low_freq_factor +
                                 keep * (bands.high_freq_factor - bands.low_freq_factor)));
    const std::vector<float> scaled = InverseFrequencies(bands, 1);
    const bool all = std::ranges::equal(scaled, InverseFrequencies(rope, 1), [](float a, float b) {
      return std::abs(a - b) <= 1e-5f * std::abs(b);
    });
    if (all) rope = bands;
    return;
  }
}

}  // namespace

RopeSpec ReadGgufRope(GgufHparams& h, const ModelConfig& c, RopeStyle style) {
  RopeSpec rope;
  rope.style = style;
  rope.rotary_dim = h.IntOr("rope.dimension_count", c.head_dim);
  rope.theta = h.FloatOr("rope.freq_base", 10000.0);
  const double factor = h.FloatOr("rope.scaling.factor", h.FloatOr("rope.scale_linear", 1.0));
  rope.factor = factor != 0 ? factor : 1.0;  // files write 0 where there is none
  rope.attn_factor = h.FloatOr("rope.scaling.attn_factor", 1.0);
  rope.original_context =
      h.FloatOr("rope.scaling.original_context_length", static_cast<double>(c.context_length));
  rope.divisors = h.Floats("rope_freqs.weight", rope.rotary_dim / 2);
  rope.short_factors = h.Floats("rope_factors_short.weight", rope.rotary_dim / 2);
  rope.long_factors = h.Floats("rope_factors_long.weight", rope.rotary_dim / 2);
  // A factor alone is linear, as in llama.cpp.
  const bool scaled = h.Has("rope.scaling.factor") || h.Has("rope.scale_linear");
  const std::string type = h.StringOr("rope.scaling.type", scaled ? "linear" : "none");
  if (!rope.long_factors.empty() || !rope.short_factors.empty()) {
    // Their files need not say the type: the tensors do.
    rope.scaling = Scaling::kLongRope;
    for (const auto& [factors, name] :
         {std::pair{&rope.short_factors, "rope_factors_short.weight"},
          std::pair{&rope.long_factors, "rope_factors_long.weight"}}) {
      if (!factors->empty()) continue;
      h.Fail({ErrorCode::kInvalidFile, fmt::format("tensor {} is missing", name)});
    }
  } else if (type == "linear") {
    rope.scaling = Scaling::kLinear;
  } else if (type == "yarn") {
    ReadYarn(h, rope);
  } else if (type != "none") {
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("rope scaling '{}' is not supported; supported: none, linear, yarn, "
                        "longrope with its tensors",
                        type)});
  }
  RecogniseBands(rope);
  return rope;
}

namespace {

// The members that a rule has in config.json. Transformers demands the first; what it has a default
// for is in the second list.
struct HfScaling {
  std::string_view type;
  Scaling scaling;
  std::vector<const char*> needed, optional;
};

const std::vector<HfScaling>& HfScalings() {
  static const auto* const kScalings = new std::vector<HfScaling>{
      {"default", Scaling::kNone, {}, {}},
      {"linear", Scaling::kLinear, {"factor"}, {}},
      {"dynamic", Scaling::kDynamic, {"factor"}, {}},
      {"yarn",
       Scaling::kYarn,
       {},
       {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
        "truncate"}},
      {"llama3",
       Scaling::kLlama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
       {}},
      {"longrope",
       Scaling::kLongRope,
       {"short_factor", "long_factor"},
       {"factor", "attention_factor"}},
  };
  return *kScalings;
}

// Members of any rule. `finetuned` says how the model was made.
constexpr std::string_view kCommonMembers[] = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings",
    "finetuned"};

// The rule of that name, if the object has all that the rule needs and nothing that it lacks.
const HfScaling* FindScaling(HfConfigReader& h, HfConfigReader& s, const std::string& key) {
  const bool typed = s.Has("rope_type") || s.Has("type");
  std::string type = s.String("rope_type", s.String("type", "default"));
  if (type == "su") type = "longrope";  // its first name
  std::string known;
  const HfScaling* found = nullptr;
  for (const HfScaling& scaling : HfScalings()) {
    if (scaling.type == type) found = &scaling;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", scaling.type);
  }
  if (found == nullptr) {
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("config.json: rope scaling '{}' is not supported; supported: {}", type,
                        known)});
    return nullptr;
  }
  for (const char* needed : found->needed) {
    if (s.Has(needed)) continue;
    h.Fail({ErrorCode::kInvalidFile,
            fmt::format("config.json: {} of type {} has no {}", key, type, needed)});
  }
  for (const auto& [name, member] : s.json().items()) {
    const auto is_name = [&](const char* other) { return name == other; };
    if (member.is_null() || std::ranges::find(kCommonMembers, name) != std::end(kCommonMembers) ||
        std::ranges::any_of(found->needed, is_name) ||
        std::ranges::any_of(found->optional, is_name)) {
      continue;
    }
    h.Fail({ErrorCode::kUnsupported,
            typed ? fmt::format("config.json: {}.{} is not supported with type {}", key, name, type)
                  : fmt::format("config.json: {} has a {} and no rope_type, which is not supported",
                                key, name)});
  }
  return found;
}

std::vector<float> ReadFactors(HfConfigReader& s, const char* key) {
  std::vector<float> factors;
  if (s.Has(key) && s.json()[key].is_array()) {
    for (const Json& factor : s.json()[key]) {
      if (factor.is_number()) factors.push_back(factor.get<float>());
    }
    if (factors.size() == s.json()[key].size()) return factors;
  }
  s.Fail({ErrorCode::kInvalidFile, fmt::format("{} is not a list of numbers", s.Where(key))});
  return {};
}

void ReadHfYarn(HfConfigReader& s, RopeSpec& rope) {
  rope.beta_fast = s.Float("beta_fast", 32.0);
  rope.beta_slow = s.Float("beta_slow", 1.0);
  rope.truncate = s.Bool("truncate", true);
  double factor = YarnAttnFactor(rope);
  // DeepSeek's dialect; one of the two alone changes nothing.
  const double mscale = s.Float("mscale", 0);
  const double mscale_all = s.Float("mscale_all_dim", 0);
  if (mscale != 0 && mscale_all != 0) {
    factor = YarnAttnFactor(rope.factor, mscale) / YarnAttnFactor(rope.factor, mscale_all);
  }
  rope.attn_factor = s.Float("attention_factor", factor);
}

void ReadHfLongRope(HfConfigReader& s, RopeSpec& rope) {
  rope.short_factors = ReadFactors(s, "short_factor");
  rope.long_factors = ReadFactors(s, "long_factor");
  double factor = 1.0;
  if (rope.factor > 1.0) {
    factor = std::sqrt(1.0 + std::log(rope.factor) / std::log(rope.original_context));
  }
  rope.attn_factor = s.Float("attention_factor", factor);
}

void ReadScaling(HfConfigReader& h, const ModelConfig& c, const HfRopeDefaults& d,
                 const std::string& key, const Json& members, RopeSpec& rope) {
  HfConfigReader s(members, key);
  const HfScaling* found = FindScaling(h, s, key);
  if (found == nullptr) return;
  rope.scaling = found->scaling;
  const auto trained = static_cast<double>(c.context_length);
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const bool grown = s.Has(kOriginal) || h.Has(kOriginal) || d.original_context > 0;
  rope.original_context =
      grown ? s.Float(kOriginal, h.Float(kOriginal, d.original_context)) : trained;
  rope.factor = s.Float("factor", 1.0);
  if (rope.scaling == Scaling::kYarn || rope.scaling == Scaling::kLongRope) {
    // Without a factor, by how much the context has grown.
    if (!s.Has("factor")) rope.factor = trained / rope.original_context;
    if (!s.Has("factor") && !grown) {
      h.Fail({ErrorCode::kInvalidFile,
              fmt::format("config.json: {} of type {} has neither factor nor {}", key, found->type,
                          kOriginal)});
    }
  }
  if (rope.scaling == Scaling::kYarn) ReadHfYarn(s, rope);
  if (rope.scaling == Scaling::kLongRope) ReadHfLongRope(s, rope);
  if (rope.scaling == Scaling::kLlama3) {
    rope.low_freq_factor = s.Float("low_freq_factor", 1.0);
    rope.high_freq_factor = s.Float("high_freq_factor", 4.0);
  }
  if (const Status status = s.status(); !status) h.Fail(status.error());
}

// The rotated part of a head, under the names that it has had.
int64_t RotaryDim(HfConfigReader& h, const ModelConfig& c, const HfRopeDefaults& d) {
  if (h.Has("rotary_dim") || d.rotary_dim > 0) return h.Int("rotary_dim", d.rotary_dim);
  const char* key = h.Pick({"partial_rotary_factor", "rotary_pct"});
  const double part = h.Float(key, d.partial);
  if (!(part > 0) || part > 1) {
    h.Fail({ErrorCode::kInvalidFile,
            fmt::format("{} is {}, must be above 0 and at most 1", h.Where(key), part)});
  }
  return static_cast<int64_t>(static_cast<double>(c.head_dim) * std::clamp(part, 0.0, 1.0));
}

}  // namespace

RopeSpec ReadHfRope(HfConfigReader& h, const ModelConfig& c, const HfRopeDefaults& d) {
  RopeSpec rope;
  rope.style = d.style;
  rope.theta = h.Float(h.Pick({"rope_theta", "rotary_emb_base"}), d.theta);
  rope.rotary_dim = RotaryDim(h, c, d);
  const char* key = h.Pick({"rope_parameters", "rope_scaling"});
  if (!h.Has(key)) return rope;
  const Json* parameters = &h.json()[key];
  if (d.group != nullptr && parameters->is_object() && parameters->contains(d.group)) {
    parameters = &(*parameters)[d.group];
  }
  if (!parameters->is_object()) {
    h.Fail({ErrorCode::kInvalidFile, fmt::format("config.json: {} is not an object", key)});
    return rope;
  }
  for (const auto& [name, member] : parameters->items()) {
    if (!member.is_object()) continue;
    h.Fail({ErrorCode::kUnsupported,
            fmt::format("config.json: {} has {} for some layers, which is not supported for this "
                        "architecture; only one for all layers is",
                        key, name)});
  }
  HfConfigReader p(*parameters, key);
  rope.theta = p.Float("rope_theta", rope.theta);
  if (p.Has("partial_rotary_factor")) rope.rotary_dim = RotaryDim(p, c, {.partial = d.partial});
  if (const Status status = p.status(); !status) h.Fail(status.error());
  ReadScaling(h, c, d, key, *parameters, rope);
  return rope;
}

}  // namespace lucid
