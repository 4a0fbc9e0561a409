#include "decode/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>

#include "base/rng.h"
#include "decode/samplers/logit_row.h"
#include "decode/samplers/select.h"
#include "decode/samplers/stage.h"

namespace lucid {
namespace {

double Entropy(const Weights& weights) {
  // H = log Z - sum(w * log w) / Z, where w = exp(logit - max).
  double sum = 0;
  for (const double w : weights.values) {
    if (w > 0) sum += w * std::log(w);
  }
  return std::log(weights.sum) - sum / weights.sum;
}

// The n first of candidates that are the most likely ones, ascending by id: most likely first, ties
// by lower id.
std::vector<TokenProb> TopOf(Candidates likely, size_t n, float max_logit, double log_sum) {
  std::stable_sort(likely.begin(), likely.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  likely.resize(std::min(n, likely.size()));
  std::vector<TokenProb> result;
  result.reserve(likely.size());
  for (const Candidate& c : likely) {
    result.push_back(
        {c.id, static_cast<float>(static_cast<double>(c.logit) - max_logit - log_sum)});
  }
  return result;
}

// The n most likely candidates, most likely first, ties by lower id.
std::vector<TokenProb> TopCandidates(std::span<const Candidate> candidates, size_t n) {
  n = std::min(n, candidates.size());
  if (n == 0) return {};
  const float limit = KthLargestLogit(candidates, n);
  Candidates likely;
  for (const Candidate& c : candidates) {
    if (c.logit >= limit) likely.push_back(c);
  }
  const Weights weights = SoftmaxWeights(candidates);
  return TopOf(std::move(likely), n, weights.max_logit, std::log(weights.sum));
}

// What a stage did, from the candidates before and after it (both ascending by id).
StageReport CompareStage(const SamplerStage& stage, const SamplerParams& params,
                         const Candidates& before, const Candidates& after) {
  StageReport report;
  report.name = stage.name;
  report.setting = stage.setting(params);
  report.kept_before = static_cast<int32_t>(before.size());
  report.kept_after = static_cast<int32_t>(after.size());
  const Weights weights = SoftmaxWeights(before);
  double removed = 0;
  size_t j = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (j < after.size() && after[j].id == before[i].id) {
      ++j;
    } else {
      removed += weights.values[i];
    }
  }
  report.mass_removed = removed / weights.sum;
  report.entropy_before = Entropy(weights);
  report.entropy_after = after.empty() ? 0 : Entropy(SoftmaxWeights(after));
  return report;
}

// Inverse of the cumulative distribution, ascending by id: the first candidate at which it exceeds
// u.
size_t InverseCdf(const Weights& weights, double u) {
  const double target = u * weights.sum;
  double sum = 0;
  size_t last_possible = 0;
  for (size_t i = 0; i < weights.values.size(); ++i) {
    if (weights.values[i] <= 0) continue;
    sum += weights.values[i];
    if (sum > target) return i;
    last_possible = i;  // rounding may leave the sum at or below the target
  }
  return last_possible;
}

// Buffers that outlive the call: at 150,000 tokens their pages cost more to fault in than to fill.
Candidates& CandidateBuffer() {
  thread_local Candidates buffer;
  return buffer;
}
LogitRow& RowBuffer() {
  thread_local LogitRow buffer;
  return buffer;
}

double WeightOneByOne(const LogitRow& row, double max) {
  double sum = 0;
  row.ForEach([&](const Candidate& c) { sum += std::exp(c.logit - max); });
  return sum;
}

}  // namespace

struct SamplerChain::Impl {
  SamplerParams params;
  const RowKernels* kernels = nullptr;
  std::vector<const SamplerStage*> stages;  // those that do something, in order

  Status CheckVocabulary(size_t vocab) const {
    if (vocab == 0) return Err(ErrorCode::kInvalidArgument, "there are no logits to sample from");
    if (params.logit_bias.empty()) return {};
    const int32_t last = params.logit_bias.rbegin()->first;
    if (static_cast<size_t>(last) >= vocab) {
      return Err(ErrorCode::kInvalidArgument,
                 "logit_bias names token {}, but the vocabulary has {} tokens", last, vocab);
    }
    return {};
  }

  // Fills `candidates` from the logits and runs the first stages, as many as can do without a list
  // of all tokens (none with `listed`). Where that is all of them and a draw is asked for, the
  // candidate it picks may be the only one left. Returns how many ran.
  size_t RunFront(std::span<const float> logits, const StageInput& input,
                  std::optional<double> draw, bool listed, Candidates& candidates) const {
    LogitRow& row = RowBuffer();
    row.Reset(logits, *kernels);
    candidates.clear();
    size_t n = 0;
    if (!listed) {
      while (n < stages.size() && stages[n]->adjust_row != nullptr &&
             stages[n]->adjust_row(input, row))
        ++n;
      if (n == stages.size()) {
        const auto drawn = draw && row.CanWeigh() ? row.Draw(*draw) : std::nullopt;
        if (drawn) candidates.push_back(*drawn);
        if (drawn) return n;
      } else if (stages[n]->select != nullptr && stages[n]->select(input, row, candidates)) {
        return n + 1;
      }
    }
    candidates.clear();
    candidates.reserve(logits.size());
    row.ForEach([&](const Candidate& c) { candidates.push_back(c); });
    return n;
  }

  // Why no candidate came out of RunFront.
  tl::unexpected<Error> NoCandidate(std::span<const float> logits) const {
    if (std::any_of(logits.begin(), logits.end(), [](float x) { return x > -INFINITY; }))
      return Forbidden(kLogitBiasStage);
    return Err(ErrorCode::kInvalidArgument, "all {} logits are -inf or NaN", logits.size());
  }
  static tl::unexpected<Error> Forbidden(const SamplerStage& stage) {
    return Err(ErrorCode::kInvalidArgument,
               "the sampling stage {} forbids every token that the model allows", stage.name);
  }

  // Runs the stages; `draw` as in RunFront. At least one candidate is left on success.
  Status RunStages(std::span<const float> logits, const StageInput& input,
                   std::optional<double> draw, SampleReport* report, int report_top,
                   Candidates& candidates) const {
    LUCID_RETURN_IF_ERROR(CheckVocabulary(logits.size()));
    const size_t first = RunFront(logits, input, draw, report != nullptr, candidates);
    if (candidates.empty()) return NoCandidate(logits);
    const auto top = static_cast<size_t>(std::max(report_top, 0));
    if (report != nullptr) {
      report->stages.clear();
      report->top_before = TopCandidates(candidates, top);
    }
    Candidates before;
    for (size_t i = first; i < stages.size(); ++i) {
      const SamplerStage* stage = stages[i];
      if (report != nullptr) before = candidates;
      stage->apply(input, candidates);
      if (report != nullptr) {
        report->stages.push_back(CompareStage(*stage, params, before, candidates));
      }
      if (candidates.empty()) return Forbidden(*stage);
    }
    if (report != nullptr) report->top_after = TopCandidates(candidates, top);
    return {};
  }
};

Result<SamplerChain> SamplerChain::Create(const SamplerParams& params, const RowKernels& kernels) {
  if (params.min_keep < 1) {
    return Err(ErrorCode::kInvalidArgument, "min_keep is {}, but must be 1 or more",
               params.min_keep);
  }
  for (const SamplerStage* stage : SamplerStages()) LUCID_RETURN_IF_ERROR(stage->validate(params));

  std::vector<const SamplerStage*> named;
  for (const std::string& name : params.samplers) {
    const SamplerStage* stage = FindSamplerStage(name);
    if (stage == nullptr) {
      std::string known;
      for (const SamplerInfo& info : AllSamplers()) {
        known += (known.empty() ? "" : ", ") + std::string(info.name);
      }
      return Err(ErrorCode::kInvalidArgument, "there is no sampler '{}'; known are {}", name,
                 known);
    }
    if (std::find(named.begin(), named.end(), stage) != named.end()) {
      return Err(ErrorCode::kInvalidArgument, "the sampler '{}' is named twice", name);
    }
    named.push_back(stage);
  }
  if (params.samplers.empty()) {
    for (const SamplerStage* stage : SamplerStages()) {
      if (stage->in_default_chain) named.push_back(stage);
    }
  }

  auto impl = std::make_unique<Impl>();
  impl->params = params;
  impl->kernels = &kernels;
  const bool greedy = params.temperature == 0;
  for (const SamplerStage* stage : named) {
    if (greedy && stage->kind != StageKind::kAdjust) continue;
    if (stage->active(params)) impl->stages.push_back(stage);
  }
  if (greedy) impl->stages.push_back(&kGreedyStage);
  return SamplerChain(std::move(impl));
}

Result<int32_t> SamplerChain::Sample(std::span<const float> logits, std::span<const int32_t> prompt,
                                     std::span<const int32_t> reply, uint64_t request,
                                     uint64_t position, SampleReport* report,
                                     int report_top) const {
  Candidates& candidates = CandidateBuffer();
  const double u = UniformDraw(impl_->params.seed, request, position);
  LUCID_RETURN_IF_ERROR(impl_->RunStages(logits, StageInput{impl_->params, prompt, reply}, u,
                                         report, report_top, candidates));
  const Weights weights = SoftmaxWeights(candidates);
  const bool certain = candidates.size() == 1;
  const size_t chosen = InverseCdf(weights, certain ? 0 : u);
  if (report != nullptr) {
    report->draw = certain ? std::nan("") : u;
    report->final_prob = weights.values[chosen] / weights.sum;
  }
  return candidates[chosen].id;
}

Result<std::vector<TokenProb>> SamplerChain::Distribution(std::span<const float> logits,
                                                          std::span<const int32_t> prompt,
                                                          std::span<const int32_t> reply) const {
  Candidates candidates;
  LUCID_RETURN_IF_ERROR(impl_->RunStages(logits, StageInput{impl_->params, prompt, reply},
                                         std::nullopt, nullptr, 0, candidates));
  const Weights weights = SoftmaxWeights(candidates);
  const double log_sum = std::log(weights.sum);
  std::vector<TokenProb> result;
  result.reserve(candidates.size());
  for (const Candidate& c : candidates) {
    const double logprob = static_cast<double>(c.logit) - weights.max_logit - log_sum;
    result.push_back({c.id, static_cast<float>(logprob)});
  }
  return result;
}

const SamplerParams& SamplerChain::params() const {
  return impl_->params;
}

std::string SamplerChain::Describe() const {
  std::string text;
  for (const SamplerStage* stage : impl_->stages) {
    text += (text.empty() ? "" : " -> ") + stage->setting(impl_->params);
  }
  return text.empty() ? "the model's own distribution" : text;
}

SamplerChain::SamplerChain(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SamplerChain::SamplerChain(SamplerChain&&) noexcept = default;
SamplerChain& SamplerChain::operator=(SamplerChain&&) noexcept = default;
SamplerChain::~SamplerChain() = default;

LogprobResult RawLogprobs(std::span<const float> logits, int32_t chosen, int n_top,
                          const RowKernels& kernels) {
  LogprobResult result;
  const auto wanted = std::min(static_cast<size_t>(std::max(n_top, 0)), logits.size());
  result.chosen = -INFINITY;
  LogitRow& row = RowBuffer();
  row.Reset(logits, kernels);
  const float max = row.Max();
  if (max > -INFINITY) {
    const double log_sum = std::log(row.CanWeigh() ? row.Weight() : WeightOneByOne(row, max));
    Candidates likely;
    if (wanted > 0) row.Largest(wanted, likely);
    result.top = TopOf(std::move(likely), wanted, max, log_sum);
    if (chosen >= 0 && static_cast<size_t>(chosen) < logits.size() &&
        logits[static_cast<size_t>(chosen)] > -INFINITY) {
      const double logit = std::min(logits[static_cast<size_t>(chosen)], FLT_MAX);
      result.chosen = static_cast<float>(logit - max - log_sum);
    }
  }
  // Impossible tokens fill up the list, lowest ids first.
  for (size_t id = 0; result.top.size() < wanted; ++id) {
    if (!(logits[id] > -INFINITY)) result.top.push_back({static_cast<int32_t>(id), -INFINITY});
  }
  return result;
}

}  // namespace lucid
