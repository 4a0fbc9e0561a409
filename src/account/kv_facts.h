// What a model's cache costs, from its plan: bytes a token, a sequence and what grouped heads,
// latent vectors and windows save. Used by `lucid account`; kv/kv_layout.h counts the blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/kv_layout.h"
#include "plan/plan.h"

namespace lucid {

struct KvFacts {
  std::string kind;  // "MHA", "GQA", "MQA", "MLA", or several where layers differ: "GQA, MHA"
  int64_t layers = 0;
  int64_t bytes_per_token = 0;  // of all layers, windows left aside
  // Numbers of a token that the cache keeps, and that it would keep if every query head had a key
  // and a value of its own (multi-head attention).
  int64_t numbers_per_token = 0;
  int64_t mha_numbers_per_token = 0;
  int64_t windowed_layers = 0;
  int64_t sequence_bytes = 0;    // of `context` tokens, in whole blocks, as the pools give them
  int64_t unwindowed_bytes = 0;  // the same if every layer kept every position

  double saving() const {
    return static_cast<double>(mha_numbers_per_token) / static_cast<double>(numbers_per_token);
  }
};

// Errors as KvLayout::Make: a type that these layers cannot have.
Result<KvFacts> KvFactsOf(const Plan& plan, const KvOptions& options, int64_t context);

}  // namespace lucid
