#include "cli/trace_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "account/units.h"

namespace lucid::cli {
namespace {

constexpr int64_t kMostKeys = 12;  // of a matrix of attention weights

std::string Counted(int64_t n, const char* what) {
  return fmt::format("{} {}{}", units::Thousands(n), what, n == 1 ? "" : "s");
}

std::string Numbers(const std::vector<float>& numbers) {
  std::string text;
  for (const float x : numbers) text += fmt::format(" {:>9.4g}", x);
  return text;
}

}  // namespace

const char* PhaseWord(size_t phase) {
  return phase == 0 ? "prefill" : "decode";
}

std::string PhaseSizes(const ShapeFlow& flow, size_t phase) {
  return fmt::format("{} x {}, {} each", Counted(flow.batch, "sequence"),
                     Counted(flow.tokens[phase], "token"), Counted(flow.keys[phase], "key"));
}

double MemoryBytes(const Cost& cost) {
  return static_cast<double>(cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes);
}

std::string CostWords(const FlowStep& step, size_t phase) {
  if (!step.runs[phase]) return "-";
  const Cost& cost = step.cost[phase];
  const double bytes = MemoryBytes(cost);
  std::string text;
  if (cost.flops > 0) text = units::Flops(static_cast<double>(cost.flops));
  if (bytes > 0) text += (text.empty() ? "" : ", ") + units::Bytes(bytes);
  return text;
}

std::string WeightWords(const FlowWeight& weight) {
  return fmt::format("{} {} {}", weight.name, weight.dtype, weight.shape);
}

std::vector<std::string> ValueLines(const ValueSummary& summary) {
  std::vector<std::string> lines = {
      fmt::format("{}  min {:.4g}  max {:.4g}  mean {:.4g}  rms {:.4g}", summary.shape, summary.min,
                  summary.max, summary.mean, summary.rms)};
  if (summary.not_finite > 0) lines[0] += fmt::format("  not finite {}", summary.not_finite);
  for (const ValueRow& row : summary.some) {
    lines.push_back(fmt::format("row {:<4}{}{}{}", row.index, Numbers(row.head),
                                row.tail.empty() ? "" : "  ...", Numbers(row.tail)));
  }
  return lines;
}

std::vector<std::string> AttentionLines(const AttentionMap& map, int64_t head) {
  std::vector<std::string> lines;
  for (const AttentionQuery& query : map.queries) {
    if (query.sequence != map.queries.front().sequence || std::ssize(lines) == kMostKeys) break;
    std::string line = fmt::format("position {:<4}", query.position);
    for (int64_t key = 0; key < std::min(kMostKeys, query.n_keys); ++key) {
      line += fmt::format(" {:.3f}", query.Weight(head, key));
    }
    if (query.n_keys > kMostKeys) line += " ...";
    if (!query.sinks.empty()) {
      line += fmt::format("  sink {:.3f}", query.sinks[static_cast<size_t>(head)]);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lucid::cli
