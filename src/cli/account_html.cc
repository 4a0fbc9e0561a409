// The page of `lucid account`: the tables, and three charts as inline SVG: the roofline with a dot
// for every kind of op, where the weights are, and how the cache grows beside them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/html_page.h"
#include "account/roofline_svg.h"
#include "account/svg.h"
#include "cli/account_report.h"
#include "cli/account_rows.h"
#include "cli/account_tables.h"

namespace lucid::cli {
namespace {

void AddDots(const PhaseStudy& phase, const char* name, const char* colour,
             std::vector<RooflineDot>& dots) {
  for (const AccountRow& row : AccountRows(phase, false)) {
    const auto flops = static_cast<double>(row.cost.flops);
    const auto bytes = static_cast<double>(row.memory_bytes());
    if (flops <= 0 || bytes <= 0) continue;
    dots.push_back({flops / bytes, flops / row.time.seconds(),
                    fmt::format("{} {}: {:.2f} FLOP/byte, {}/s, {}, bound by {}", name, row.name,
                                flops / bytes, Flops(flops / row.time.seconds()),
                                Seconds(row.time.seconds()), Bound(row.time)),
                    false, colour});
  }
  const auto flops = static_cast<double>(phase.ledger.total.flops);
  dots.push_back({phase.ledger.intensity(), flops / phase.step.seconds,
                  fmt::format("{} as a whole: {:.2f} FLOP/byte, {}/s", name,
                              phase.ledger.intensity(), Flops(flops / phase.step.seconds)),
                  true, colour});
}

std::string Roofline(const Study& study) {
  std::vector<RooflineDot> dots;
  if (study.prefill) AddDots(*study.prefill, "prefill", "--c2", dots);
  if (study.decode) AddDots(*study.decode, "decode", "--c1", dots);
  return RooflineChart(
             study.hardware, dots,
             {{"--c2", study.prefill ? "prefill" : ""}, {"--c1", study.decode ? "decode" : ""}}) +
         "<p class=\"muted\">A dot is one kind of op in all layers, a large one the whole phase; "
         "point at it for its numbers.</p>\n";
}

// Bars of the parts' bytes, widest first as they come in the table.
std::string WeightChart(const Study& study) {
  constexpr double kBar = 22, kGap = 8, kNames = 130, kNumbers = 190;
  const std::array<PartSum, kParts> sums = PartSums(study);
  int64_t most = 1;
  for (const PartSum& sum : sums) most = std::max(most, sum.bytes);
  std::string chart;
  double top = 4;
  for (size_t i = 0; i < kParts; ++i) {
    if (sums[i].bytes == 0) continue;
    const double share = static_cast<double>(sums[i].bytes) / static_cast<double>(most);
    const double width = std::max(1.0, (svg::kWidth - kNames - kNumbers) * share);
    chart += svg::Text(kNames - 10, top + 15, "end", Name(static_cast<Part>(i)));
    chart += svg::Rect(kNames, top, width, kBar, "fill: var(--c1)");
    chart += svg::Text(kNames + width + 8, top + 15, "start",
                       fmt::format("{}, {:.1f} %", Bytes(static_cast<double>(sums[i].bytes)),
                                   100 * static_cast<double>(sums[i].bytes) /
                                       static_cast<double>(study.weight_bytes)));
    top += kBar + kGap;
  }
  return svg::Document(top, "bytes of weights by part", chart);
}

// Bytes that a decode step of one sequence reads, by how many tokens the sequence has.
std::string KvChart(const Study& study) {
  constexpr double kHeight = 320;
  const double weights = static_cast<double>(study.token_bytes);
  const double crossing = static_cast<double>(study.kv_passes_weights);
  const double trained = static_cast<double>(study.model.config.context_length);
  Workload types;
  types.k_type = study.k_type;
  types.v_type = study.v_type;
  const svg::Axis x =
      svg::LogAxis(100, std::max({crossing, trained, 1e4}), svg::kLeft, svg::kWidth - svg::kRight);
  std::vector<std::pair<double, double>> points;
  double least = weights, most = weights;
  for (double at = x.from; at <= x.to * 1.001; at *= std::pow(10, 0.05)) {
    const Workload work = DecodeWork(1, std::llround(at), types);
    double bytes = 0;
    for (const Op& op : study.model.plan.ops) {
      bytes += static_cast<double>(Info(op.kind).cost(study.model.plan, op, work).kv_read_bytes);
    }
    points.emplace_back(at, bytes);
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  const svg::Axis y = svg::LogAxis(least, most * 1.05, kHeight - svg::kBottom, svg::kTop);
  std::string chart = svg::Grid(x, y, "tokens of the sequence", svg::PlainLabel,
                                [](double value) { return Bytes(value); });
  for (auto& [tokens, bytes] : points) {
    tokens = x.At(tokens);
    bytes = y.At(bytes);
  }
  chart += svg::Path(points, "stroke: var(--c2); stroke-width: 2");
  chart +=
      svg::Line(x.begin, y.At(weights), x.end, y.At(weights), "stroke: var(--c1); stroke-width: 2");
  chart += svg::Line(x.At(trained), y.begin, x.At(trained), y.end,
                     "stroke: var(--muted); stroke-dasharray: 4 4");
  return svg::Document(kHeight, "bytes of the cache by length", chart) +
         svg::Legend(
             {{"--c2", "keys and values that a token reads"},
              {"--c1", fmt::format("weights that it streams: {}", Bytes(weights))},
              {"--muted", fmt::format("trained for {} tokens", Thousands(std::llround(trained)))}});
}

}  // namespace

std::string AccountHtml(const Study& study, bool full) {
  std::string body = ParagraphHtml(AccountTitle(study) + "\n" + HardwareText(study));
  body += "<ul>\n";
  for (const std::string& finding : AccountFindings(study)) {
    body += "<li>" + EscapeHtml(finding) + "</li>\n";
  }
  body += "</ul>\n";
  const auto section = [&body](const char* title, const std::string& content) {
    body += fmt::format("<h2>{}</h2>\n<div class=\"card\">{}</div>\n", title, content);
  };
  section("Roofline", Roofline(study));
  section("Weights", WeightChart(study) + TableHtml(WeightTable(study)));
  section("Cache", KvChart(study) + TableHtml(KvTable(study)));
  section("Memory", TableHtml(MemoryTable(study)));
  const auto phase = [&](const PhaseStudy& p, bool prefill) {
    section(prefill ? "Prefill" : "Decode", ParagraphHtml(PhaseHeading(study, p, prefill)) +
                                                TableHtml(PhaseTable(p, full, prefill)));
  };
  if (study.prefill) phase(*study.prefill, true);
  if (study.decode) phase(*study.decode, false);
  return RenderHtmlPage({.title = "lucid account: " + study.model.config.arch,
                         .style = std::string(svg::Style()),
                         .body = body,
                         .script = ""});
}

}  // namespace lucid::cli
