// The rows of a ledger as people read them: equal ops of all layers in one, numbers with units.
// Used by the table and the page of `lucid account`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "account/units.h"
#include "engine/study.h"

namespace lucid::cli {

struct AccountRow {
  std::string name;   // "blk.*.attn_q", with `full` "blk.0.attn_q"
  int64_t count = 1;  // of layers
  std::string shape;  // of one of them: "[T, 4096]"
  std::string weights;
  Part part = Part::kHead;
  Cost cost;  // of all
  int64_t square_flops = 0;
  OpTime time;

  int64_t memory_bytes() const {
    return cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes;
  }
};

// Ops without any cost in this phase are left out. `full`: every op by itself.
std::vector<AccountRow> AccountRows(const PhaseStudy& phase, bool full);

// The op's name with a star for its layer: "blk.*.attn_q".
std::string StarredName(const LedgerRow& row);

using units::Bytes;
using units::Flops;
using units::Seconds;
using units::Thousands;
// "memory" or "compute"; "-" where neither takes any time.
std::string_view Bound(const OpTime& time);

}  // namespace lucid::cli
