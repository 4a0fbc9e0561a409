#include "cli/account_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

namespace lucid::cli {
namespace {

// Three digits and a unit of 1000s.
std::string Scaled(double value, std::initializer_list<const char*> units) {
  const char* const* unit = units.begin();
  while (std::abs(value) >= 999.5 && unit + 1 != units.end()) {
    value /= 1000;
    ++unit;
  }
  const int digits = value == std::floor(value) && unit == units.begin() ? 0
                     : std::abs(value) >= 99.95                          ? 0
                     : std::abs(value) >= 9.995                          ? 1
                                                                         : 2;
  return fmt::format("{:.{}f} {}", value, digits, *unit);
}

std::string Starred(const LedgerRow& row) {
  if (row.layer < 0) return row.name;
  const size_t end = row.name.find('.', 4);
  return "blk.*" + (end == std::string::npos ? "" : row.name.substr(end));
}

}  // namespace

std::vector<AccountRow> AccountRows(const PhaseStudy& phase, bool full) {
  std::vector<AccountRow> rows;
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, size_t> known;
  for (size_t i = 0; i < phase.ledger.rows.size(); ++i) {
    const LedgerRow& row = phase.ledger.rows[i];
    const Cost& cost = row.cost;
    if (cost.flops == 0 && row.memory_bytes() == 0 && cost.activation_bytes == 0) continue;
    const std::string shape = row.kind == OpKind::kKvStore ? "" : row.shape.ToString();
    const std::string name = full ? row.name : Starred(row);
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

std::string Bytes(double bytes) {
  return Scaled(bytes, {"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string Flops(double flops) {
  return Scaled(flops, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
}

std::string Seconds(double seconds) {
  return seconds >= 1 ? Scaled(seconds, {"s"}) : Scaled(seconds * 1e9, {"ns", "us", "ms"});
}

std::string Thousands(int64_t number) {
  std::string digits = std::to_string(std::abs(number));
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return number < 0 ? "-" + digits : digits;
}

std::string_view Bound(const OpTime& time) {
  if (time.memory == 0 && time.arithmetic == 0) return "-";
  return time.by_memory() ? "memory" : "compute";
}

}  // namespace lucid::cli
