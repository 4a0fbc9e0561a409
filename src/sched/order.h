// The order in which sequences are served.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "sched/sequence.h"

namespace lucid {

// So many levels of age put a sequence before everything younger, whatever the priorities and
// whoever was served least: an endless stream of new clients cannot keep it waiting.
constexpr int64_t kPatience = 32;

struct Rank {
  int64_t level = 0;   // higher goes first: the priority with its age
  int64_t served = 0;  // lower goes first: tokens of its client
  SequenceId id = 0;   // lower goes first
};

inline bool Before(const Rank& a, const Rank& b) {
  if (a.level != b.level) return a.level > b.level;
  if (a.served != b.served) return a.served < b.served;
  return a.id < b.id;
}

// Ranks sequences of one step.
class Ranking {
 public:
  Ranking(std::span<const Sequence* const> sequences, int64_t step, int64_t aging_steps,
          const std::map<std::string, int64_t>* served);
  Rank Of(const Sequence& sequence) const;

 private:
  int64_t step_;
  int64_t aging_steps_;
  int64_t top_ = 0;  // highest priority present: age lifts a sequence up to it
  const std::map<std::string, int64_t>* served_;
};

}  // namespace lucid
