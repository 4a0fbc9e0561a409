// CostModel: how long a step takes, learnt from the steps that ran.
//
// seconds = w . {1, decode tokens, decode keys, prefill tokens, prefill pairs}, every w >= 0.
#pragma once

#include <array>
#include <cstdint>

namespace lucid {

// What a step's time depends on.
struct StepLoad {
  int64_t decode_tokens = 0;
  int64_t decode_keys = 0;  // keys that decode rows read, summed
  int64_t prefill_tokens = 0;
  int64_t prefill_pairs = 0;  // (query, key) pairs of prefill rows
};

// Recursive least squares of the relative error. Old steps are forgotten where newer ones say the
// same thing: a long stretch without prefill does not wash out what prefill costs.
class CostModel {
 public:
  void Observe(const StepLoad& load, double seconds);  // seconds > 0
  double Predict(const StepLoad& load) const;          // seconds; 0 before anything was observed
  int64_t observations() const { return observations_; }
  // The longest prefill that was observed: how far the model can be trusted.
  int64_t most_prefill_tokens() const { return most_prefill_tokens_; }

 private:
  static constexpr int kFeatures = 5;
  using Vector = std::array<double, kFeatures>;

  static Vector Features(const StepLoad& load);
  void Solve(const Vector& target);

  Vector weights_{};
  std::array<Vector, kFeatures> information_{};  // sum of x x^T over the steps, weighted by age
  int64_t observations_ = 0;
  int64_t most_prefill_tokens_ = 0;
};

}  // namespace lucid
