// The page of `lucid account`: the tables, and three charts as inline SVG: the roofline with a dot
// for every kind of op, where the weights are, and how the cache grows beside them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/html_page.h"
#include "cli/account_report.h"
#include "cli/account_rows.h"
#include "cli/account_tables.h"

namespace lucid::cli {
namespace {

constexpr double kWidth = 760, kLeft = 86, kRight = 20, kTop = 16, kBottom = 46;

// A logarithmic axis between powers of ten.
struct LogAxis {
  double from = 1, to = 10;     // decades
  double begin = 0, end = 100;  // where they lie
  double At(double value) const {
    const double part =
        (std::log10(value) - std::log10(from)) / (std::log10(to) - std::log10(from));
    return begin + (end - begin) * std::clamp(part, 0.0, 1.0);
  }
};

double DecadeBelow(double value) {
  return std::pow(10, std::floor(std::log10(value)));
}
double DecadeAbove(double value) {
  return std::pow(10, std::ceil(std::log10(value)));
}

std::string Line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" style=\"{}\"/>\n", x1, y1, x2,
      y2, style);
}

std::string Text(double x, double y, const char* anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     EscapeHtml(text));
}

std::string Number(double value) {
  return value >= 0.01 && value < 1e6 ? fmt::format("{:g}", value) : fmt::format("{:.0e}", value);
}

// Grid and labels; `unit` writes a value of the y axis. Labels of decades that lie close are left
// out.
std::string Axes(const LogAxis& x, const LogAxis& y, const char* x_title,
                 std::string (*x_unit)(double), std::string (*y_unit)(double)) {
  constexpr const char* kGrid = "stroke: var(--line)";
  constexpr double kNear = 1.001;
  std::string svg;
  const double x_step = std::log10(x.to / x.from) > 8 ? 100 : 10;
  const double y_step = std::log10(y.to / y.from) > 8 ? 100 : 10;
  for (double at = x.from; at <= x.to * kNear; at *= x_step) {
    svg += Line(x.At(at), y.begin, x.At(at), y.end, kGrid);
    svg += Text(x.At(at), y.begin + 18, "middle", x_unit(at));
  }
  for (double at = y.from; at <= y.to * kNear; at *= y_step) {
    svg += Line(x.begin, y.At(at), x.end, y.At(at), kGrid);
    svg += Text(x.begin - 8, y.At(at) + 4, "end", y_unit(at));
  }
  return svg + Text((x.begin + x.end) / 2, y.begin + 38, "middle", x_title);
}

std::string Svg(double height, const std::string& what, const std::string& content) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
      "class=\"chart\">\n{}</svg>\n",
      kWidth, height, EscapeHtml(what), content);
}

// "<span>" entries with a coloured mark, below a chart: text beside no line can overlap another.
std::string Legend(std::initializer_list<std::pair<const char*, std::string>> entries) {
  std::string html = "<p class=\"legend\">";
  for (const auto& [colour, text] : entries) {
    if (text.empty()) continue;
    html += fmt::format("<span><i style=\"background: var({})\"></i>{}</span> ", colour,
                        EscapeHtml(text));
  }
  return html + "</p>\n";
}

struct Dot {
  double intensity = 0, rate = 0;  // FLOPs per byte, FLOPs per second
  std::string title;
  bool whole = false;  // a whole phase
  const char* colour = "--c1";
};

void AddDots(const PhaseStudy& phase, const char* name, const char* colour,
             std::vector<Dot>& dots) {
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

std::string RooflineChart(const Study& study) {
  std::vector<Dot> dots;
  if (study.prefill) AddDots(*study.prefill, "prefill", "--c2", dots);
  if (study.decode) AddDots(*study.decode, "decode", "--c1", dots);
  const double ridge = study.hardware.Ridge();
  const double peak = study.hardware.FlopsFor(DType::kF16);
  double least = ridge / 10, most = ridge * 10, slowest = peak / 100;
  for (const Dot& dot : dots) {
    least = std::min(least, dot.intensity);
    most = std::max(most, dot.intensity);
    slowest = std::min(slowest, dot.rate);
  }
  constexpr double kHeight = 420;
  const LogAxis x{DecadeBelow(least), DecadeAbove(most), kLeft, kWidth - kRight};
  const LogAxis y{DecadeBelow(slowest), DecadeAbove(peak * 1.05), kHeight - kBottom, kTop};
  std::string svg = Axes(x, y, "FLOP per byte from memory", Number,
                         [](double value) { return Flops(value) + "/s"; });
  constexpr const char* kRoof = "stroke: var(--ink); stroke-width: 2";
  const double bandwidth = study.hardware.bytes_per_second;
  const double start = std::max(x.from, y.from / bandwidth);
  svg += Line(x.At(start), y.At(start * bandwidth), x.At(ridge), y.At(peak), kRoof);
  svg += Line(x.At(ridge), y.At(peak), x.end, y.At(peak), kRoof);
  svg += Line(x.At(ridge), y.At(peak), x.At(ridge), y.begin,
              "stroke: var(--muted); stroke-dasharray: 4 4");
  for (const Dot& dot : dots) {
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" style=\"fill: var({}); fill-opacity: {}; "
        "stroke: var(--card)\"><title>{}</title></circle>\n",
        x.At(dot.intensity), y.At(dot.rate), dot.whole ? 8 : 5, dot.colour, dot.whole ? 1 : 0.7,
        EscapeHtml(dot.title));
  }
  return Svg(kHeight, "roofline", svg) +
         Legend({{"--c2", study.prefill ? "prefill" : ""},
                 {"--c1", study.decode ? "decode" : ""},
                 {"--ink", fmt::format("roof: {}/s, {}/s", Bytes(bandwidth), Flops(peak))},
                 {"--muted", fmt::format("ridge: {:.0f} FLOP per byte", ridge)}}) +
         "<p class=\"muted\">A dot is one kind of op in all layers, a large one the whole phase; "
         "point at it for its numbers.</p>\n";
}

// Bars of the parts' bytes, widest first as they come in the table.
std::string WeightChart(const Study& study) {
  constexpr double kBar = 22, kGap = 8, kNames = 130, kNumbers = 190;
  const std::array<PartSum, kParts> sums = PartSums(study);
  int64_t most = 1;
  for (const PartSum& sum : sums) most = std::max(most, sum.bytes);
  std::string svg;
  double top = 4;
  for (size_t i = 0; i < kParts; ++i) {
    if (sums[i].bytes == 0) continue;
    const double share = static_cast<double>(sums[i].bytes) / static_cast<double>(most);
    const double width = std::max(1.0, (kWidth - kNames - kNumbers) * share);
    svg += Text(kNames - 10, top + 15, "end", Name(static_cast<Part>(i)));
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"3\" style=\"fill: "
        "var(--c1)\"/>\n",
        kNames, top, width, kBar);
    svg += Text(kNames + width + 8, top + 15, "start",
                fmt::format("{}, {:.1f} %", Bytes(static_cast<double>(sums[i].bytes)),
                            100 * static_cast<double>(sums[i].bytes) /
                                static_cast<double>(study.weight_bytes)));
    top += kBar + kGap;
  }
  return Svg(top, "bytes of weights by part", svg);
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
  const LogAxis x{100, DecadeAbove(std::max({crossing, trained, 1e4})), kLeft, kWidth - kRight};
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
  const LogAxis y{DecadeBelow(least), DecadeAbove(most * 1.05), kHeight - kBottom, kTop};
  std::string svg =
      Axes(x, y, "tokens of the sequence", Number, [](double value) { return Bytes(value); });
  std::string path;
  for (const auto& [tokens, bytes] : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.At(tokens), y.At(bytes));
  }
  svg += fmt::format("<path d=\"{}\" style=\"fill: none; stroke: var(--c2); stroke-width: 2\"/>\n",
                     path);
  svg += Line(x.begin, y.At(weights), x.end, y.At(weights), "stroke: var(--c1); stroke-width: 2");
  svg += Line(x.At(trained), y.begin, x.At(trained), y.end,
              "stroke: var(--muted); stroke-dasharray: 4 4");
  return Svg(kHeight, "bytes of the cache by length", svg) +
         Legend(
             {{"--c2", "keys and values that a token reads"},
              {"--c1", fmt::format("weights that it streams: {}", Bytes(weights))},
              {"--muted", fmt::format("trained for {} tokens", Thousands(std::llround(trained)))}});
}

std::string TableHtml(const ReportTable& table) {
  const auto row = [&](const std::vector<std::string>& cells, const char* tag) {
    std::string html = "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      html += fmt::format("<{}{}>{}</{}>", tag, i < table.left ? "" : " class=\"num\"",
                          EscapeHtml(cells[i]), tag);
    }
    return html + "</tr>\n";
  };
  std::string html = "<div class=\"scroll\"><table>\n" + row(table.head, "th");
  for (const auto& cells : table.rows) html += row(cells, "td");
  return html + "</table></div>\n";
}

std::string Paragraphs(const std::string& lines) {
  std::string html = "<p>";
  for (const char c : EscapeHtml(lines))
    html += c == '\n' ? std::string("<br>") : std::string(1, c);
  return html + "</p>\n";
}

constexpr const char* kStyle = R"css(
svg.chart { display: block; width: 100%; max-width: 760px; height: auto; }
p.legend { margin: 4px 0; }
p.legend span { margin-right: 18px; white-space: nowrap; }
p.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
)css";

}  // namespace

std::string AccountHtml(const Study& study, bool full) {
  std::string body = Paragraphs(AccountTitle(study) + "\n" + HardwareText(study));
  body += "<ul>\n";
  for (const std::string& finding : AccountFindings(study)) {
    body += "<li>" + EscapeHtml(finding) + "</li>\n";
  }
  body += "</ul>\n";
  const auto section = [&body](const char* title, const std::string& content) {
    body += fmt::format("<h2>{}</h2>\n<div class=\"card\">{}</div>\n", title, content);
  };
  section("Roofline", RooflineChart(study));
  section("Weights", WeightChart(study) + TableHtml(WeightTable(study)));
  section("Cache", KvChart(study) + TableHtml(KvTable(study)));
  section("Memory", TableHtml(MemoryTable(study)));
  const auto phase = [&](const PhaseStudy& p, bool prefill) {
    section(prefill ? "Prefill" : "Decode",
            Paragraphs(PhaseHeading(study, p, prefill)) + TableHtml(PhaseTable(p, full, prefill)));
  };
  if (study.prefill) phase(*study.prefill, true);
  if (study.decode) phase(*study.decode, false);
  return RenderHtmlPage({.title = "lucid account: " + study.model.config.arch,
                         .style = kStyle,
                         .body = body,
                         .script = ""});
}

}  // namespace lucid::cli
