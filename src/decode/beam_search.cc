#include "decode/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lucid {

BeamSearch::BeamSearch(int32_t width, double length_penalty, std::function<bool(int32_t)> is_end)
    : width_(width), length_penalty_(length_penalty), is_end_(std::move(is_end)) {}

namespace {

double Score(double sum, size_t length, double penalty) {
  return sum / std::pow(static_cast<double>(length), penalty);
}

}  // namespace

void BeamSearch::Finish(const Beam& beam, const TokenProb& token, double sum, bool ended) {
  BeamHypothesis h;
  h.tokens.assign(beam.tokens.begin(), beam.tokens.end());
  h.tokens.push_back(token.id);
  if (!beam.logprobs.empty() || beam.tokens.empty()) {
    h.logprobs.assign(beam.logprobs.begin(), beam.logprobs.end());
    h.logprobs.push_back({token.logprob, {beam.candidates.begin(), beam.candidates.end()}});
  }
  h.logprob_sum = sum;
  h.score = Score(sum, h.tokens.size(), length_penalty_);
  h.ended = ended;
  const auto place = std::upper_bound(
      finished_.begin(), finished_.end(), h,
      [](const BeamHypothesis& a, const BeamHypothesis& b) { return a.score > b.score; });
  finished_.insert(place, std::move(h));
  if (std::ssize(finished_) > width_) finished_.pop_back();
}

std::vector<BeamSearch::Next> BeamSearch::Step(std::span<const Beam> beams, bool last) {
  std::vector<Next> all;
  for (size_t i = 0; i < beams.size(); ++i) {
    for (const TokenProb& token : beams[i].candidates) {
      all.push_back({static_cast<int32_t>(i), token,
                     beams[i].logprob_sum + static_cast<double>(token.logprob)});
    }
  }
  const size_t looked_at = std::min(all.size(), static_cast<size_t>(2 * width_));
  // Equal sums: the earlier beam, then the likelier token, as they were collected.
  std::stable_sort(all.begin(), all.end(),
                   [](const Next& a, const Next& b) { return a.logprob_sum > b.logprob_sum; });
  all.resize(looked_at);

  std::vector<Next> living;
  for (size_t rank = 0; rank < all.size() && std::ssize(living) < width_; ++rank) {
    const Next& next = all[rank];
    const Beam& beam = beams[static_cast<size_t>(next.parent)];
    if (is_end_(next.token.id)) {
      if (static_cast<int32_t>(rank) < width_) {
        Finish(beam, next.token, next.logprob_sum, /*ended=*/true);
      }
    } else {
      living.push_back(next);
    }
  }
  if (living.empty()) return {};
  if (last) {
    for (const Next& next : living) {
      Finish(beams[static_cast<size_t>(next.parent)], next.token, next.logprob_sum,
             /*ended=*/false);
    }
    return {};
  }
  if (std::ssize(finished_) >= width_) {
    const size_t length = beams[0].tokens.size() + 1;
    const double best = Score(living.front().logprob_sum, length, length_penalty_);
    if (finished_.back().score >= best) return {};
  }
  return living;
}

}  // namespace lucid
