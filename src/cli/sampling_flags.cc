#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

namespace lucid::cli {

namespace {

constexpr const char* kGroup = "Sampling";

// The parser of the flags would take the nearest number that there is, and so give another seed
// than the user's.
std::string CheckSeed(const std::string& text) {
  int64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("the seed {} is not a whole number below 2^63", text);
}

}  // namespace

void AddSamplingFlags(CLI::App& command, SamplingFlags& flags) {
  SamplerParams& p = flags.params;
  std::string names;
  for (const SamplerInfo& info : AllSamplers())
    names += (names.empty() ? "" : ";") + std::string(info.name);
  const std::string group = kGroup;
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->capture_default_str()->group(group);
  };
  add("-s,--seed", flags.seed, "seed of the sampler; negative: a fresh one")->check(CheckSeed, "");
  add("--temp,--temperature", p.temperature, "temperature; 0: greedy");
  add("--top-k", p.top_k, "keep the k most likely tokens; 0: all");
  add("--top-p", p.top_p, "keep the smallest set of at least this probability; 1: all");
  add("--min-p", p.min_p,
      "keep tokens of at least this share of the most likely one's probability; 0: all");
  add("--typical,--typical-p", p.typical_p,
      "keep locally typical tokens of this probability; 1: all");
  add("--repeat-penalty", p.repetition_penalty,
      "divide the logits of tokens that occurred; 1: off");
  add("--frequency-penalty", p.frequency_penalty,
      "subtract this for each time a token occurred in the reply");
  add("--presence-penalty", p.presence_penalty, "subtract this once a token occurred in the reply");
  add("--repeat-last-n", p.repeat_last_n, "the penalties look at this many last tokens; -1: all");
  command
      .add_option("--samplers", flags.samplers,
                  "the stages in order, separated by ';'; all: " + names)
      ->group(group);
  command
      .add_option("--logit-bias", flags.logit_bias,
                  "TOKEN_ID+BIAS or TOKEN_ID-BIAS, e.g. 15-inf; may be repeated")
      ->group(group);
}

namespace {

Result<std::pair<int32_t, float>> ParseLogitBias(const std::string& text) {
  const size_t sign = text.find_first_of("+-", 1);
  char* end = nullptr;
  const long id = std::strtol(text.c_str(), &end, 10);
  const bool id_ok = sign != std::string::npos && end == text.c_str() + sign && id >= 0 &&
                     id <= std::numeric_limits<int32_t>::max();
  const float bias = id_ok ? std::strtof(text.c_str() + sign, &end) : 0;
  if (!id_ok || *end != '\0' || std::isnan(bias)) {
    return Err(ErrorCode::kInvalidArgument,
               "--logit-bias '{}' is not TOKEN_ID+BIAS or TOKEN_ID-BIAS", text);
  }
  return std::pair{static_cast<int32_t>(id), bias};
}

}  // namespace

Status CheckNothingDraws(const CLI::App& command, const SamplingFlags& flags) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() != kGroup || option->count() == 0) continue;
    const std::string name = option->get_name();
    if (name == "--temp" && flags.params.temperature == 0) continue;
    return Err(ErrorCode::kInvalidArgument, "{} does not go with --beams, which draws nothing",
               name);
  }
  return {};
}

Result<SamplerParams> ToSamplerParams(const SamplingFlags& flags) {
  SamplerParams params = flags.params;
  if (flags.seed >= 0) {
    params.seed = static_cast<uint64_t>(flags.seed);
  } else {
    params.seed = std::random_device()();
  }
  for (const std::string& text : flags.logit_bias) {
    LUCID_ASSIGN_OR_RETURN(const auto bias, ParseLogitBias(text));
    params.logit_bias[bias.first] = bias.second;
  }
  size_t at = 0;
  while (at < flags.samplers.size()) {
    const size_t end = std::min(flags.samplers.find_first_of(";,", at), flags.samplers.size());
    if (end > at) params.samplers.push_back(flags.samplers.substr(at, end - at));
    at = end + 1;
  }
  return params;
}

}  // namespace lucid::cli
