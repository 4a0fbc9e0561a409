// A run to look at: prompts through an engine as one batch, then decode steps, every op seen by
// observers. Used by `lucid trace`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace lucid {

// Who sees which steps; each may be empty.
struct RunObservers {
  std::vector<Observer*> prefill = {};
  std::vector<Observer*> decode = {};  // the first of its steps
  std::vector<Observer*> every = {};   // all steps
};

// What an engine must be loaded with so that `prompts` sequences of `tokens` tokens make one
// prefill step and share no blocks, though they be equal.
void PrepareForTrace(int64_t prompts, int64_t tokens, EngineConfig& config);

// Greedy, `decode_steps` steps behind the prefill. Errors as Engine::Submit and of the run.
Status RunObserved(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                   int64_t decode_steps, const RunObservers& observers);

// Token ids for runs in which the text does not matter: `count` prompts that differ.
std::vector<std::vector<TokenId>> MadeUpPrompts(int64_t count, int64_t tokens, int64_t vocab);

}  // namespace lucid
