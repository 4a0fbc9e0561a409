// PackedWeights: the matrices of a plan in the packed form that its kernels read
// (kernels/packed.h), made by all threads when a model is made ready to run.
#pragma once

#include <cstddef>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "models/weights.h"
#include "plan/plan.h"

namespace lucid {

class PackedWeights {
 public:
  PackedWeights() = default;

  // Packs every matrix that an op of `plan` multiplies with and whose type has a packed form; an op
  // that takes several matrices gets all of them packed or none. kCapacity if memory is short.
  static Result<PackedWeights> Pack(const Plan& plan, const Weights& weights, ThreadPool& pool);

  // The packed matrix of a weight value, or nullptr.
  const std::byte* operator[](Value v) const {
    return v.present() && !places_.empty() ? places_[static_cast<size_t>(v.id)] : nullptr;
  }
  size_t bytes() const { return memory_.size(); }

 private:
  Buffer memory_;
  std::vector<const std::byte*> places_;  // by value id
};

}  // namespace lucid
