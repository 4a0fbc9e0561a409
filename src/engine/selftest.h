// RunSelftest: whether a model file, this build and this machine fit together, found out by use.
//
// Text checks (selftest_text.cc) look at tokenizer and chat template; model checks
// (selftest_model.cc) run a short text that comes with the program on the reference executor and on
// every instruction set of the machine, and compare. Entry point of `lucid selftest`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config.h"

namespace lucid {

enum class CheckState { kPassed, kFailed, kSkipped };

struct SelfCheck {
  std::string name = {};  // "tokenizer", "kernels avx2"
  CheckState state = CheckState::kPassed;
  std::string detail =
      {};  // what was compared with what result; where it failed, the first difference
};

struct SelftestOptions {
  EngineConfig engine = {};  // the model and how it is run
  std::string tokenizer_json =
      {};                // of the same model, to compare with; "": the one beside a .gguf
  int64_t texts = 2000;  // random ones, for the tokenizer
  uint64_t seed = 1;     // of those
};

// Called with each check as it ends.
using CheckReport = std::function<void(const SelfCheck&)>;

// Runs all checks. An error where the model cannot be opened or run at all; what is wrong with one
// that runs is a failed check.
Status RunSelftest(const SelftestOptions& options, const CheckReport& report);

}  // namespace lucid
