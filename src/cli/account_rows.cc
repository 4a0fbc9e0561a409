#include "cli/account_rows.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace lucid::cli {
std::string StarredName(const LedgerRow& row) {
  if (row.layer < 0) return row.name;
  const size_t end = row.name.find('.', 4);
  return "blk.*" + (end == std::string::npos ? "" : row.name.substr(end));
}

std::vector<AccountRow> AccountRows(const PhaseStudy& phase, bool full) {
  std::vector<AccountRow> rows;
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, size_t> known;
  for (size_t i = 0; i < phase.ledger.rows.size(); ++i) {
    const LedgerRow& row = phase.ledger.rows[i];
    const Cost& cost = row.cost;
    if (cost.flops == 0 && row.memory_bytes() == 0 && cost.activation_bytes == 0) continue;
    const std::string shape = row.kind == OpKind::kKvStore ? "" : row.shape.ToString();
    const std::string name = full ? row.name : StarredName(row);
    const auto [found, is_new] = known.try_emplace({name, shape, row.weights}, rows.size());
    if (is_new) {
      rows.push_back({.name = name,
                      .count = 0,
                      .shape = shape,
                      .weights = row.weights,
                      .part = row.part,
                      .cost = {},
                      .square_flops = 0,
                      .time = {}});
    }
    AccountRow& sum = rows[found->second];
    ++sum.count;
    sum.cost += cost;
    sum.square_flops += row.square_flops;
    sum.time.memory += phase.times[i].memory;
    sum.time.arithmetic += phase.times[i].arithmetic;
    sum.time.other += phase.times[i].other;
  }
  return rows;
}

std::string_view Bound(const OpTime& time) {
  if (time.memory == 0 && time.arithmetic == 0) return "-";
  return time.by_memory() ? "memory" : "compute";
}

}  // namespace lucid::cli
