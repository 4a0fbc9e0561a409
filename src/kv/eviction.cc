// The eviction policies: which cache places to keep. Pure functions; evictor.cc moves the rows.
#include "kv/eviction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace lucid {
namespace {

constexpr std::array kPolicies = {KvPolicy::kFull, KvPolicy::kWindowSink, KvPolicy::kH2o,
                                  KvPolicy::kSnapKv};
// Below this the sinks would be most of what is kept.
constexpr int64_t kSmallestBudget = 4 * kAttentionSinks;

// A score that can be ordered: one that is no number comes last.
float Ordered(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

// The `n_pick` places with the largest scores, the lower of two equal ones first, in no order.
std::vector<int32_t> LargestPlaces(std::span<const float> scores, int64_t n_pick) {
  std::vector<int32_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  const auto middle = places.begin() + n_pick;
  std::nth_element(places.begin(), middle, places.end(), [scores](int32_t a, int32_t b) {
    const float score_a = Ordered(scores[static_cast<size_t>(a)]);
    const float score_b = Ordered(scores[static_cast<size_t>(b)]);
    return score_a != score_b ? score_a > score_b : a < b;
  });
  places.erase(middle, places.end());
  return places;
}

// The largest score within kSnapKvPool places around each: whole phrases are kept, not lone tokens.
std::vector<float> MaxPooled(std::span<const float> scores) {
  constexpr int64_t kReach = kSnapKvPool / 2;
  const auto n = static_cast<int64_t>(scores.size());
  std::vector<float> pooled(scores.size());
  for (int64_t i = 0; i < n; ++i) {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t j = std::max<int64_t>(0, i - kReach); j < std::min(n, i + kReach + 1); ++j)
      largest = std::max(largest, Ordered(scores[static_cast<size_t>(j)]));
    pooled[static_cast<size_t>(i)] = largest;
  }
  return pooled;
}

}  // namespace

std::string_view Name(KvPolicy policy) {
  switch (policy) {
    case KvPolicy::kFull:
      return "full";
    case KvPolicy::kWindowSink:
      return "window_sink";
    case KvPolicy::kH2o:
      return "h2o";
    case KvPolicy::kSnapKv:
      return "snapkv";
  }
  return "?";
}

std::optional<KvPolicy> KvPolicyFromName(std::string_view name) {
  for (const KvPolicy policy : kPolicies) {
    if (Name(policy) == name) return policy;
  }
  return std::nullopt;
}

std::span<const KvPolicy> AllKvPolicies() {
  return kPolicies;
}

int64_t LeastBudget(KvPolicy policy, int64_t block_size) {
  const int64_t least = std::max(4 * block_size, kSmallestBudget);
  return policy == KvPolicy::kSnapKv ? std::max(least, 2 * kSnapKvWindow) : least;
}

Status CheckEviction(const EvictionOptions& options, const KvLayout& layout) {
  if (options.policy == KvPolicy::kFull) return {};
  const KvOptions& kv = layout.options();
  const int64_t least = LeastBudget(options.policy, kv.block_size);
  if (options.budget < least) {
    return Err(ErrorCode::kInvalidArgument,
               "the cache policy {} needs a budget of at least {} tokens (cache blocks are {} "
               "tokens long), not {}",
               Name(options.policy), least, kv.block_size, options.budget);
  }
  if (std::ranges::any_of(layout.layers(), [](const KvSpec& spec) { return spec.v_dim == 0; })) {
    return Err(
        ErrorCode::kInvalidArgument,
        "the cache policy {} cannot drop tokens of the latent cache of this model; choose the "
        "policy full",
        Name(options.policy));
  }
  if (!IsRowType(kv.k_type) || !IsRowType(kv.v_type)) {
    return Err(ErrorCode::kInvalidArgument,
               "the cache policy {} cannot drop single tokens of a {} cache; choose another cache "
               "type or the policy full",
               Name(options.policy), Name(IsRowType(kv.k_type) ? kv.v_type : kv.k_type));
  }
  if (std::ranges::none_of(layout.groups(),
                           [](const KvGroup& g) { return g.kind == KvGroupKind::kFull; })) {
    return Err(ErrorCode::kInvalidArgument,
               "the cache policy {} has nothing to do: every layer of this model has a sliding "
               "window",
               Name(options.policy));
  }
  return {};
}

std::vector<int32_t> PlacesToKeep(KvPolicy policy, std::span<const float> scores, int64_t n_places,
                                  int64_t n_keep) {
  LUCID_CHECK(n_keep >= 0 && n_places >= 0);
  std::vector<int32_t> keep;
  // The newest places stay in any case, as many as the policy says; `keep` gets the older ones.
  int64_t n_newest = n_places;
  if (policy != KvPolicy::kFull && n_keep < n_places) {
    LUCID_CHECK(policy == KvPolicy::kWindowSink || std::ssize(scores) == n_places);
    switch (policy) {
      case KvPolicy::kFull:
        break;
      case KvPolicy::kWindowSink:
        keep.resize(static_cast<size_t>(std::min(kAttentionSinks, n_keep)));
        std::iota(keep.begin(), keep.end(), 0);
        n_newest = n_keep - std::ssize(keep);
        break;
      case KvPolicy::kH2o: {
        const int64_t n_heavy = n_keep / 2;
        n_newest = n_keep - n_heavy;
        keep = LargestPlaces(scores.first(static_cast<size_t>(n_places - n_newest)), n_heavy);
        break;
      }
      case KvPolicy::kSnapKv: {
        n_newest = std::min(kSnapKvWindow, n_keep);
        const auto older = scores.first(static_cast<size_t>(n_places - n_newest));
        keep = LargestPlaces(MaxPooled(older), n_keep - n_newest);
        break;
      }
    }
  }
  std::ranges::sort(keep);
  for (int64_t place = n_places - n_newest; place < n_places; ++place)
    keep.push_back(static_cast<int32_t>(place));
  return keep;
}

}  // namespace lucid
