// CostModel: how long a step takes, learnt from the steps that ran.
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

// Recursive least squares with forgetting over {1, decode tokens, decode keys, prefill tokens,
// prefill pairs}; coefficients below zero count as zero.
class CostModel {
 public:
  CostModel();
  void Observe(const StepLoad& load, double seconds);
  double Predict(const StepLoad& load) const;  // seconds; 0 before anything was observed
  int64_t observations() const { return observations_; }

 private:
  static constexpr int kFeatures = 5;
  std::array<double, kFeatures> weights_{};
  std::array<std::array<double, kFeatures>, kFeatures> covariance_{};
  int64_t observations_ = 0;
};

}  // namespace lucid
