// Flags of the sampler chain, shared by run, chat and batch, under llama.cpp's names.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "decode/sampler.h"

namespace lucid::cli {

struct SamplingFlags {
  SamplerParams params;
  int64_t seed = -1;                    // negative: a fresh one each time
  std::string samplers;                 // "penalties;top_k;..." or with commas
  std::vector<std::string> logit_bias;  // "TOKEN_ID+1.5", "TOKEN_ID-inf"
};

void AddSamplingFlags(CLI::App& command, SamplingFlags& flags);

// kInvalidArgument names a flag that was given and means nothing to a beam search, which draws
// nothing. Penalties and --logit-bias, which the engine refuses, are among them; --temp 0 is not.
Status CheckNothingDraws(const CLI::App& command, const SamplingFlags& flags);

// The parameters with the seed drawn where none was given. kInvalidArgument names the flag and
// value.
Result<SamplerParams> ToSamplerParams(const SamplingFlags& flags);

}  // namespace lucid::cli
