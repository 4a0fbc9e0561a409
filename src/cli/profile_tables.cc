#include "cli/profile_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cli/account_rows.h"
#include "plan/op_table.h"

namespace lucid::cli {
namespace {

std::string Rate(double rate) {
  return rate < 100 ? fmt::format("{:.1f}", rate) : Thousands(std::llround(rate));
}

std::string Signed(double seconds) {
  return (seconds > 0 ? "+" : "") + Seconds(seconds);
}

std::string SignedPercent(double part, double whole) {
  return whole > 0 ? fmt::format("{:+.1f} %", 100 * part / whole) : "-";
}

void AddTo(ProfileRow& row, const ProfiledOp& op) {
  ++row.count;
  row.cost += op.row.cost;
  row.predicted += op.predicted_seconds;
  row.memory += op.predicted.memory;
  row.arithmetic += op.predicted.arithmetic;
  row.measured.work += op.measured.work;
  row.measured.wait += op.measured.wait;
  row.residual += op.residual;
}

// Of the rate that bounds products and attention, what they reach.
std::string Reached(const ProfileRow& row) {
  const double seconds = row.measured.total();
  const auto bytes = static_cast<double>(row.memory_bytes());
  const auto flops = static_cast<double>(row.cost.flops);
  if (seconds <= 0 || row.cost.macs == 0) return "-";
  return row.memory >= row.arithmetic ? Bytes(bytes / seconds) + "/s"
                                      : Flops(flops / seconds) + "/s";
}

std::vector<std::string> TimeCells(const ProfileRow& row, double all) {
  return {Bytes(static_cast<double>(row.memory_bytes())),
          Flops(static_cast<double>(row.cost.flops)),
          Seconds(row.predicted),
          Seconds(row.measured.total()),
          PercentText(row.measured.total(), all),
          Seconds(row.measured.wait),
          Signed(row.residual_seconds()),
          SignedPercent(row.residual_seconds(), row.measured.total()),
          std::string(Name(row.residual.largest())),
          Reached(row)};
}

const std::vector<std::string> kTimeHead = {"bytes", "FLOPs",   "predicted", "measured",
                                            "share", "waiting", "residual",  "of measured",
                                            "cause", "reaches"};

}  // namespace

std::string_view PhaseName(const ProfiledPhase& phase) {
  return phase.prefill ? "prefill" : "decode";
}

std::vector<ProfileRow> ProfileRows(const ProfiledPhase& phase, bool full) {
  std::vector<ProfileRow> rows;
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, size_t> known;
  for (const ProfiledOp& op : phase.ops) {
    const std::string name = full ? op.row.name : StarredName(op.row);
    const Key key{name, op.row.shape.ToString(), op.row.weights};
    const auto [found, is_new] = known.try_emplace(key, rows.size());
    if (is_new) {
      rows.push_back({.name = name,
                      .weights = op.row.weights,
                      .kernel = op.kernel,
                      .cost = {},
                      .measured = {},
                      .residual = {}});
    }
    AddTo(rows[found->second], op);
  }
  return rows;
}

std::vector<ProfileRow> KindRows(const ProfiledPhase& phase) {
  std::map<OpKind, ProfileRow> kinds;
  for (const ProfiledOp& op : phase.ops) {
    ProfileRow& row = kinds[op.row.kind];
    row.name = Info(op.row.kind).name;
    AddTo(row, op);
  }
  std::vector<ProfileRow> rows;
  for (auto& [kind, row] : kinds) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, [](const ProfileRow& a, const ProfileRow& b) {
    return a.measured.total() > b.measured.total();
  });
  return rows;
}

ReportTable ProfileOpTable(const ProfiledPhase& phase, bool full) {
  ReportTable table{.head = {"op", "kernel", "weights", "ops"}, .rows = {}, .left = 3};
  table.head.insert(table.head.end(), kTimeHead.begin(), kTimeHead.end());
  ProfileRow sum{
      .name = "all ops", .weights = "", .kernel = "", .cost = {}, .measured = {}, .residual = {}};
  for (const ProfiledOp& op : phase.ops) {
    AddTo(sum, op);
  }
  std::vector<ProfileRow> rows = ProfileRows(phase, full);
  rows.push_back(sum);
  for (const ProfileRow& row : rows) {
    std::vector<std::string> line = {row.name, std::string(row.kernel), row.weights,
                                     fmt::format("{}", row.count)};
    const std::vector<std::string> cells = TimeCells(row, phase.ops_seconds);
    line.insert(line.end(), cells.begin(), cells.end());
    table.rows.push_back(std::move(line));
  }
  return table;
}

ReportTable ProfileKindTable(const ProfiledPhase& phase) {
  ReportTable table{.head = {"kind of op", "ops"}, .rows = {}, .left = 1};
  table.head.insert(table.head.end(), kTimeHead.begin(), kTimeHead.end());
  for (const ProfileRow& row : KindRows(phase)) {
    std::vector<std::string> line = {row.name, fmt::format("{}", row.count)};
    const std::vector<std::string> cells = TimeCells(row, phase.ops_seconds);
    line.insert(line.end(), cells.begin(), cells.end());
    table.rows.push_back(std::move(line));
  }
  return table;
}

ReportTable ProfileStepTable(const ProfiledPhase& phase) {
  const char* whole = phase.prefill ? "the whole prompts" : "a step";
  ReportTable table{{std::string("of ") + whole, "time", "share"}};
  double wait = 0;
  for (const ProfiledOp& op : phase.ops) wait += op.measured.wait;
  const auto add = [&](const char* what, double seconds) {
    table.rows.push_back({what, Seconds(seconds), PercentText(seconds, phase.seconds)});
  };
  add("ops, working", phase.ops_seconds - wait);
  add("ops, waiting at barriers", wait);
  add("threads start and end", phase.threads_seconds);
  add("before: decisions, cache blocks, the batch", phase.before);
  add("after: picking tokens, handing them out", phase.after);
  add("together", phase.seconds);
  return table;
}

ReportTable ProfileLayerTable(const Profile& profile) {
  ReportTable table{.head = {"layer"}, .rows = {}, .left = 1};
  int layers = 0;
  for (const ProfiledPhase& phase : profile.phases) {
    for (const char* column : {"bytes", "predicted", "measured", "residual", "cause"}) {
      table.head.push_back(fmt::format("{} {}", PhaseName(phase), column));
    }
    for (const ProfiledOp& op : phase.ops) layers = std::max(layers, op.row.layer + 1);
  }
  for (int layer = -1; layer < layers; ++layer) {
    std::vector<std::string> line = {layer < 0 ? "outside" : fmt::format("{}", layer)};
    for (const ProfiledPhase& phase : profile.phases) {
      ProfileRow sum;
      for (const ProfiledOp& op : phase.ops) {
        if (op.row.layer == layer) AddTo(sum, op);
      }
      line.push_back(Bytes(static_cast<double>(sum.memory_bytes())));
      line.push_back(Seconds(sum.predicted));
      line.push_back(Seconds(sum.measured.total()));
      line.push_back(SignedPercent(sum.residual_seconds(), sum.measured.total()));
      line.emplace_back(Name(sum.residual.largest()));
    }
    table.rows.push_back(std::move(line));
  }
  return table;
}

std::vector<WaterfallBar> Waterfall(const Profile& profile, const ProfiledPhase& decode) {
  int64_t bytes = 0;
  for (const ProfiledOp& op : decode.ops) {
    bytes += op.row.cost.weight_bytes + op.row.cost.kv_read_bytes;
  }
  std::vector<WaterfallBar> bars;
  bars.push_back({fmt::format("limit: {} at {}/s", Bytes(static_cast<double>(bytes)),
                              Bytes(profile.hardware.bytes_per_second)),
                  decode.ReadingSeconds(), true});
  const CauseTimes causes = decode.BeyondReading();
  bars.push_back({"dequantisation", causes[Cause::kDequantisation]});
  bars.push_back({"arithmetic", causes[Cause::kArithmetic]});
  bars.push_back({"memory", causes[Cause::kMemory]});
  bars.push_back({"other ops", causes[Cause::kOtherOps]});
  bars.push_back({"sync", causes[Cause::kSync]});
  bars.push_back({"outside of ops", decode.seconds - decode.ops_seconds});
  bars.push_back({"disturbed steps", decode.mean_seconds - decode.seconds});
  bars.push_back({"measured", decode.mean_seconds, true});
  return bars;
}

ReportTable WaterfallTable(const Profile& profile, const ProfiledPhase& decode) {
  ReportTable table{{"why decode misses the bandwidth", "time", "share", "so far", "tokens/s"}};
  const auto tokens = static_cast<double>(decode.tokens);
  double at = 0;
  for (const WaterfallBar& bar : Waterfall(profile, decode)) {
    at = bar.sum ? bar.seconds : at + bar.seconds;
    table.rows.push_back({bar.label, bar.sum ? Seconds(bar.seconds) : Signed(bar.seconds),
                          PercentText(bar.seconds, decode.mean_seconds), Seconds(at),
                          Rate(tokens / at)});
  }
  return table;
}

std::string ProfileTitle(const Engine& engine, const Profile& profile) {
  const ModelConfig& c = engine.model().config;
  const KvOptions& kv = engine.kv_layout().options();
  const Hardware& hardware = profile.hardware;
  return fmt::format(
      "{}, {} layers, width {}; {}, {} numerics, cache {}/{}\n{} ({}): reads {}/s, {}/s with "
      "16-bit numbers\nB, kB, MB, GB are powers of 1000; a multiply-add is 2 FLOPs",
      c.arch, c.n_layers, c.dim, ThreadsText(engine.runner().n_threads()),
      Name(engine.runner().numerics()), Name(kv.k_type), Name(kv.v_type), hardware.name,
      hardware.source, Bytes(hardware.bytes_per_second), Flops(hardware.FlopsFor(DType::kF16)));
}

std::string ProfileHeading(const ProfiledPhase& phase) {
  const std::string what =
      phase.prefill ? fmt::format("prefill: {} tokens in {} step{}, {} time{}",
                                  Thousands(phase.tokens), phase.steps, phase.steps == 1 ? "" : "s",
                                  phase.passes, phase.passes == 1 ? "" : "s")
                    : fmt::format("decode: {} token{} a step, {} steps timed", phase.tokens,
                                  phase.tokens == 1 ? "" : "s", phase.passes);
  const double predicted = phase.predicted_tokens_per_second();
  return fmt::format(
      "{}\n{} tokens/s measured, {} predicted ({})", what, Rate(phase.tokens_per_second()),
      Rate(predicted),
      SignedPercent(predicted - phase.tokens_per_second(), phase.tokens_per_second()));
}

std::vector<std::string> ProfileFindings(const ProfiledPhase& phase) {
  std::vector<std::string> list;
  list.push_back(fmt::format("ops and their barriers are {} of the {}",
                             PercentText(phase.ops_seconds, phase.seconds),
                             phase.prefill ? "time" : "step"));
  const CauseTimes residual = phase.Residual();
  std::string causes;
  for (size_t i = 0; i < kCauses; ++i) {
    const auto cause = static_cast<Cause>(i);
    if (std::abs(residual[cause]) < 0.0005 * phase.mean_seconds) continue;
    causes += fmt::format("{}{} {}", causes.empty() ? "" : ", ", Name(cause),
                          SignedPercent(residual[cause], phase.mean_seconds));
  }
  list.push_back(fmt::format("measured minus predicted: {}{}",
                             SignedPercent(residual.sum(), phase.mean_seconds),
                             causes.empty() ? "" : " (" + causes + ")"));
  list.push_back(fmt::format(
      "the {} had {:.2f} CPUs; disturbed steps add {}", ThreadsText(phase.threads), phase.cpus,
      PercentText(std::max(0.0, phase.mean_seconds - phase.seconds), phase.mean_seconds)));
  if (phase.timing_cost) {
    list.push_back(
        fmt::format("steps that are timed take {:+.2f} % longer than those between "
                    "them that are not",
                    100 * *phase.timing_cost));
  }
  return list;
}

}  // namespace lucid::cli
