// Flags of the sampler chain, shared by run and chat, under llama.cpp's names.
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

// The parameters with the seed drawn where none was given. kInvalidArgument names the flag and
// value.
Result<SamplerParams> ToSamplerParams(const SamplingFlags& flags);

}  // namespace lucid::cli
