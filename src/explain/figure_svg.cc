#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "explain/page_html.h"
#include "explain/page_text.h"

namespace lucid {
namespace {

constexpr std::array<const char*, 6> kColours = {"--c1", "--c2", "--c3", "--c4", "--c5", "--c6"};

// About the width of a label in units of the chart.
double LabelWidth(std::string_view text) {
  constexpr double kColumn = 7.2;
  return kColumn * static_cast<double>(DisplayWidth(text));
}

std::string BarsSvg(const Bars& drawing, std::string_view what) {
  constexpr double kBar = 20, kGap = 7, kMostName = 220;
  double names = 40, texts = 20, most = 0;
  for (const Bars::Bar& bar : drawing.bars) {
    names = std::max(names, std::min(kMostName, LabelWidth(bar.name)));
    texts = std::max(texts, LabelWidth(bar.text));
    most = std::max(most, bar.value);
  }
  const auto columns = static_cast<size_t>(kMostName / LabelWidth("x"));
  std::string svg;
  double top = 4;
  for (const Bars::Bar& bar : drawing.bars) {
    const double part = most > 0 ? bar.value / most : 0;
    const double width = std::max(1.0, (svg::kWidth - names - texts - 30) * part);
    svg += svg::Text(names + 2, top + 14, "end",
                     Padded(bar.name, std::min(columns, DisplayWidth(bar.name))));
    svg += svg::Rect(names + 10, top, width, kBar, "fill: var(--c1)", bar.text);
    svg += svg::Text(names + 18 + width, top + 14, "start", bar.text);
    top += kBar + kGap;
  }
  return svg::Document(top, what, svg);
}

struct Bounds {
  double least = INFINITY, most = -INFINITY;
  void Add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

svg::Axis AxisOf(const Bounds& bounds, bool log, double begin, double end) {
  return log ? svg::LogAxis(bounds.least, bounds.most, begin, end)
             : svg::LinearAxis(bounds.most, begin, end);
}

std::string PlotSvg(const Plot& plot, std::string_view what) {
  constexpr double kHeight = 340;
  Bounds xs, ys;
  for (const Plot::Line& line : plot.lines) {
    for (const auto& [x, y] : line.points) {
      xs.Add(x);
      ys.Add(y);
    }
  }
  for (const Plot::Mark& mark : plot.marks) {
    xs.Add(mark.x);
    ys.Add(mark.y);
  }
  for (const Plot::Rule& rule : plot.rules) (rule.vertical ? xs : ys).Add(rule.at);
  const svg::Axis x = AxisOf(xs, plot.log_x, svg::kLeft, svg::kWidth - svg::kRight);
  const svg::Axis y = AxisOf(ys, plot.log_y, kHeight - svg::kBottom, svg::kTop);
  std::string svg = svg::Grid(x, y, plot.x_title, plot.x_label, plot.y_label);
  std::vector<std::pair<std::string, std::string>> legend;
  size_t colour = 0;
  for (const Plot::Line& line : plot.lines) {
    const char* const stroke = kColours[colour++ % kColours.size()];
    std::vector<std::pair<double, double>> points;
    for (const auto& [at_x, at_y] : line.points) points.emplace_back(x.At(at_x), y.At(at_y));
    svg += svg::Path(points, fmt::format("stroke: var({}); stroke-width: 2", stroke));
    legend.emplace_back(stroke, line.name);
  }
  for (const Plot::Rule& rule : plot.rules) {
    const char* const stroke = kColours[colour++ % kColours.size()];
    const std::string style = fmt::format("stroke: var({}); stroke-dasharray: 5 4", stroke);
    svg += rule.vertical ? svg::Line(x.At(rule.at), y.begin, x.At(rule.at), y.end, style)
                         : svg::Line(x.begin, y.At(rule.at), x.end, y.At(rule.at), style);
    legend.emplace_back(stroke,
                        fmt::format("{}: {}", rule.name,
                                    rule.vertical ? plot.x_label(rule.at) : plot.y_label(rule.at)));
  }
  for (const Plot::Mark& mark : plot.marks) {
    const char* const fill = kColours[colour++ % kColours.size()];
    const std::string title =
        fmt::format("{}: {}, {}", mark.name, plot.x_label(mark.x), plot.y_label(mark.y));
    svg += svg::Circle(x.At(mark.x), y.At(mark.y), 7,
                       fmt::format("fill: var({}); stroke: var(--card)", fill), title);
    legend.emplace_back(fill, title);
  }
  return svg::Document(kHeight, what, svg) + svg::Legend(legend);
}

std::string HeatSvg(const HeatMap& map, std::string_view what) {
  const double names = [&] {
    double widest = 20;
    for (const std::string& name : map.row_names) widest = std::max(widest, LabelWidth(name));
    return std::min(200.0, widest) + 10;
  }();
  const size_t columns = map.rows.empty() ? 1 : std::max<size_t>(1, map.rows.front().size());
  const double side = std::min(34.0, (svg::kWidth - names - 10) / static_cast<double>(columns));
  // Names of columns stand upright above them.
  double head = 0;
  for (const std::string& name : map.column_names) head = std::max(head, LabelWidth(name));
  head = std::min(130.0, head) + 12;
  std::string svg;
  const auto label_columns = static_cast<size_t>(118 / LabelWidth("x"));
  for (size_t j = 0; j < map.column_names.size(); ++j) {
    const double at = names + side * (static_cast<double>(j) + 0.5) + 4;
    const std::string& name = map.column_names[j];
    svg += fmt::format("<g transform=\"rotate(-90 {:.1f} {:.1f})\">{}</g>\n", at, head - 6,
                       svg::Text(at, head - 6, "start",
                                 Padded(name, std::min(label_columns, DisplayWidth(name)))));
  }
  for (size_t i = 0; i < map.rows.size(); ++i) {
    const double top = head + side * static_cast<double>(i);
    const std::string& name = map.row_names[i];
    svg += svg::Text(names - 6, top + side / 2 + 4, "end",
                     Padded(name, std::min<size_t>(26, DisplayWidth(name))));
    for (size_t j = 0; j < map.rows[i].size(); ++j) {
      const double value = map.rows[i][j];
      const std::string style =
          value < 0 ? "fill: none; stroke: var(--line); stroke-dasharray: 2 3"
                    : fmt::format("fill: var(--c1); fill-opacity: {:.3f}; stroke: var(--line)",
                                  std::clamp(value, 0.0, 1.0));
      const std::string column =
          j < map.column_names.size() ? map.column_names[j] : std::to_string(j);
      svg += svg::Rect(names + side * static_cast<double>(j), top, side - 1, side - 1, style,
                       fmt::format("{} -> {}: {}", name, column,
                                   value < 0 ? "masked" : fmt::format("{:.3f}", value)));
    }
  }
  return svg::Document(head + side * static_cast<double>(map.rows.size()) + 4, what, svg);
}

std::string CellsSvg(const Cells& cells, std::string_view what) {
  constexpr double kHigh = 26, kGap = 8, kLeast = 26;
  double names = 20, widest = kLeast;
  size_t most = 1;
  for (const Cells::Row& row : cells.rows) {
    names = std::max(names, LabelWidth(row.name) + 12);
    most = std::max(most, row.cells.size());
    for (const Cells::Cell& cell : row.cells) {
      widest = std::max(widest, LabelWidth(cell.text) + 8);
    }
  }
  const double side = std::min(widest, (svg::kWidth - names - 6) / static_cast<double>(most));
  std::string svg;
  double top = 4;
  for (const Cells::Row& row : cells.rows) {
    svg += svg::Text(names - 8, top + 17, "end", row.name);
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const Cells::Cell& cell = row.cells[i];
      const double at = names + side * static_cast<double>(i);
      const std::string style =
          cell.colour == 0
              ? "fill: none; stroke: var(--line)"
              : fmt::format("fill: var({}); fill-opacity: 0.25; stroke: var({})",
                            kColours[static_cast<size_t>(cell.colour - 1) % kColours.size()],
                            kColours[static_cast<size_t>(cell.colour - 1) % kColours.size()]);
      svg += svg::Rect(at, top, side - 3, kHigh, style, cell.text);
      svg += svg::Text(at + (side - 3) / 2, top + 17, "middle", cell.text);
    }
    top += kHigh + kGap;
  }
  return svg::Document(top, what, svg);
}

std::string TurnsSvg(const Turns& turns, std::string_view what) {
  const auto count = static_cast<double>(std::max<size_t>(1, turns.circles.size()));
  const double side = std::min(250.0, svg::kWidth / count);
  const double radius = side / 2 - 24;
  std::string svg;
  for (size_t i = 0; i < turns.circles.size(); ++i) {
    const Turns::Circle& circle = turns.circles[i];
    const double x = side * (static_cast<double>(i) + 0.5), y = side / 2;
    svg += svg::Circle(x, y, radius, "fill: none; stroke: var(--line)");
    for (size_t p = 0; p < circle.angles.size(); ++p) {
      const double angle = circle.angles[p];
      // The plane's second axis points up, a chart's down.
      const double to_x = x + radius * std::cos(angle), to_y = y - radius * std::sin(angle);
      const double fade =
          0.35 + 0.65 * static_cast<double>(p + 1) / static_cast<double>(circle.angles.size());
      svg += svg::Line(
          x, y, to_x, to_y,
          fmt::format("stroke: var(--c1); stroke-width: 2; stroke-opacity: {:.2f}", fade));
      svg +=
          svg::Circle(to_x, to_y, 3.5, fmt::format("fill: var(--c1); fill-opacity: {:.2f}", fade),
                      fmt::format("position {}: {:.3f} rad", p, angle));
    }
    svg += svg::Text(x, side + 8, "middle", circle.name);
  }
  return svg::Document(side + 20, what, svg);
}

struct DrawingSvg {
  std::string_view what;
  std::string operator()(const Bars& d) const { return BarsSvg(d, what); }
  std::string operator()(const Plot& d) const { return PlotSvg(d, what); }
  std::string operator()(const HeatMap& d) const { return HeatSvg(d, what); }
  std::string operator()(const Cells& d) const { return CellsSvg(d, what); }
  std::string operator()(const Turns& d) const { return TurnsSvg(d, what); }
};

}  // namespace

std::string FigureSvg(const Figure& figure) {
  return std::visit(DrawingSvg{figure.caption}, figure.drawing);
}

}  // namespace lucid
