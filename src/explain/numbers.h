// Small sums that several topics show: distributions, divergences, and ops looked up in a plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/sampler.h"
#include "explain/subject.h"

namespace lucid {

// The softmax of logits / temperature, in double. A temperature of 0 gives the largest all.
std::vector<double> Probabilities(std::span<const float> logits, double temperature = 1);
double Entropy(std::span<const double> p);                                // nats
double Divergence(std::span<const double> p, std::span<const double> q);  // KL(p || q), nats
// Indices of the n largest, largest first.
std::vector<int32_t> Largest(std::span<const double> values, size_t n);

// "0.25": digits after the point, zeros at the end kept.
std::string Fixed(double value, int digits);
// "12.5 %"
std::string Percent(double part, int digits = 1);

// The op of that name, or nullptr.
const Op* FindOp(const Plan& plan, std::string_view name);
// The first op of that kind, or nullptr.
const Op* FirstOp(const Plan& plan, OpKind kind);
// The weight of that name in the model's list, or nullptr.
const ValueInfo* FindWeight(const Plan& plan, std::string_view name);
// "[9, 576]": shape of what an op gives for a prompt of `tokens`, one row of logits.
std::string OutputShape(const Plan& plan, const Op& op, int64_t tokens);

// How the attention of a layer is set up, whatever its form. All zero for a layer without.
struct HeadShape {
  int64_t queries = 0;  // query heads
  int64_t keys = 0;     // heads that the cache keeps (latent caches: 1)
  int64_t k_dim = 0;    // numbers of a stored key
  int64_t v_dim = 0;    // numbers of a stored value; 0: made of the key (latent caches)
  double scale = 0;     // factor of the scores
  int64_t window = 0;   // 0: none
  double alibi = 0;     // max bias; 0: none
  bool latent = false;
};
HeadShape HeadsOf(const Plan& plan, size_t layer = 0);

// Sentence for pages whose numbers need a run: why there is none.
std::string NoWeights(const Subject& subject);

}  // namespace lucid
