// ValueRecorder: what the numbers of a step were: of every op's results the range and a few
// entries, small ones whole; of attention its weights. `lucid trace --values` prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/attention_tap.h"
#include "exec/observer.h"

namespace lucid {

// Some entries of a row; all of them where `tail` is empty.
struct ValueRow {
  int64_t index = 0;  // of the row: the token's, or the output's
  std::vector<float> head;
  std::vector<float> tail;  // the last entries, where some are left out between
};

struct ValueSummary {
  std::string op;
  std::string name;   // of the value
  std::string shape;  // "[20, 576]"
  int64_t rows = 0;
  float min = 0, max = 0;
  double mean = 0, rms = 0;
  int64_t not_finite = 0;
  std::vector<ValueRow> some;  // the first rows and the last; all where there are few
};

class ValueRecorder final : public Observer {
 public:
  void AfterOp(const ObservedOp& observed) override;
  // In the order in which ops ran; ops that had no token are left out.
  const std::vector<ValueSummary>& values() const { return values_; }
  const std::vector<AttentionMap>& attention() const { return tap_.maps(); }

 private:
  std::vector<ValueSummary> values_;
  AttentionTap tap_;
};

}  // namespace lucid
