// Samplers: from the logits of one position to one token, as an ordered chain that the user can see
// and change.
//
// A chain is built from SamplerParams (registry.cc holds the list of stages and their order);
// Sample() runs it over a row of logits and reports, on request, what every stage removed. The draw
// is keyed by (seed, request, position).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/rows.h"

namespace lucid {

// Defaults are those of llama.cpp's command line. A stage whose parameter is neutral does nothing.
struct SamplerParams {
  uint64_t seed = 0;
  float temperature = 0.8f;         // 0: greedy; then only penalties and logit_bias act before it
  int32_t top_k = 40;               // <= 0: off; candidates equal to the k-th stay
  float top_p = 0.95f;              // 1: off
  float min_p = 0.05f;              // 0: off
  float typical_p = 1.0f;           // 1: off
  float repetition_penalty = 1.0f;  // 1: off; over prompt and reply (Keskar et al. 2019, CTRL)
  float frequency_penalty = 0.0f;   // OpenAI: per occurrence in the reply
  float presence_penalty = 0.0f;    // OpenAI: once a token has occurred in the reply
  int32_t repeat_last_n = -1;       // the penalties look at this many last tokens; -1: all, 0: none
  std::map<int32_t, float> logit_bias;  // token id -> added to its logit; -inf forbids it
  int32_t min_keep = 1;                 // no filter leaves fewer candidates than this
  // Stage names in order, e.g.
  // {"penalties","logit_bias","top_k","typical_p","top_p","min_p","temperature"}; empty: default.
  std::vector<std::string> samplers;
};

// What one stage did, for --explain-sampling. Probabilities are the softmax over the candidates
// before / after it.
struct StageReport {
  std::string name;
  std::string setting;  // "top_k=40"
  int32_t kept_before = 0, kept_after = 0;
  double mass_removed = 0;  // probability of the removed candidates before the stage
  double entropy_before = 0, entropy_after = 0;  // nats
};

struct TokenProb {
  int32_t id = -1;
  float logprob = 0;
};

struct SampleReport {
  std::vector<StageReport> stages;
  std::vector<TokenProb> top_before,
      top_after;    // most likely candidates of the raw and of the final distribution
  double draw = 0;  // the uniform number; NaN where one candidate is left and nothing is drawn
  double final_prob = 0;  // of the chosen token in the final distribution
};

// Log-probabilities of the raw model distribution (before any stage), finite or -inf never printed
// as JSON numbers.
struct LogprobResult {
  float chosen = 0;
  std::vector<TokenProb> top;  // n most likely, ties by lower id first
};
LogprobResult RawLogprobs(std::span<const float> logits, int32_t chosen, int n_top,
                          const RowKernels& kernels = BestRowKernels());

class SamplerChain {
 public:
  // kInvalidArgument names the parameter and its range (NaN, negative temperature, unknown or
  // repeated stage name). The kernels are only a matter of time, never of what is drawn.
  static Result<SamplerChain> Create(const SamplerParams& params,
                                     const RowKernels& kernels = BestRowKernels());

  // Picks a token for `position` (index of the new token in its sequence). `prompt` and `reply` are
  // the tokens so far; `request` keys the generator. Fills `report` unless nullptr (top candidates:
  // `report_top` of them). kInvalidArgument if all logits are -inf or NaN, if logit_bias forbids
  // the rest, or if it names a token outside the vocabulary.
  Result<int32_t> Sample(std::span<const float> logits, std::span<const int32_t> prompt,
                         std::span<const int32_t> reply, uint64_t request, uint64_t position,
                         SampleReport* report = nullptr, int report_top = 10) const;

  // The candidates and probabilities that the draw would be made from, ascending by id (tests,
  // explain).
  Result<std::vector<TokenProb>> Distribution(std::span<const float> logits,
                                              std::span<const int32_t> prompt,
                                              std::span<const int32_t> reply) const;

  const SamplerParams& params() const;
  std::string Describe() const;  // "penalties -> top_k=40 -> ... -> temperature=0.8"

  SamplerChain(SamplerChain&&) noexcept;
  SamplerChain& operator=(SamplerChain&&) noexcept;
  ~SamplerChain();

 private:
  struct Impl;
  explicit SamplerChain(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Every stage name with one line of help, in the default order.
struct SamplerInfo {
  std::string_view name;
  std::string_view help;
};
std::span<const SamplerInfo> AllSamplers();

}  // namespace lucid
