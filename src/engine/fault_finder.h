// FaultFinder: where the numbers of a sequence stop being finite.
//
// A row of logits with an infinity or a NaN tells that a model is broken, or that its activations
// leave the range of floats, but not where. The loop runs such a step once more under this
// observer, which looks at the result of every operation; loop_output.cc makes an error of what it
// finds.
//
// Tokens before the named one may be spoilt by it too, in the operations after the named one:
// attention computes several tokens of a sequence together, and gives the weight 0 to a value that
// one of them does not see, which leaves a NaN a NaN. Other sequences are not touched.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "exec/observer.h"

namespace lucid {

// The first result with a number that is not finite.
struct Fault {
  std::string value;     // its name in the plan: "blk.3.ffn_down"
  int64_t position = 0;  // of the token in its sequence
};

class FaultFinder final : public Observer {
 public:
  // `sequences`: which of the step's to look at.
  explicit FaultFinder(std::span<const int32_t> sequences);

  void AfterOp(const ObservedOp& observed) override;
  // What was found in a sequence; nothing if all of it is finite.
  const std::optional<Fault>& Of(int32_t sequence) const { return faults_.at(sequence); }

 private:
  std::map<int32_t, std::optional<Fault>> faults_;
};

}  // namespace lucid
