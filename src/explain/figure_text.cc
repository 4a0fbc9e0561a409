// Figures with characters. Charts of two axes become a small table of the same numbers: a terminal
// has too few dots for a line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "explain/page_text.h"

namespace lucid {
namespace {

std::string BarLines(const Bars& drawing) {
  constexpr size_t kMostName = 26;
  constexpr double kWidest = 40;
  size_t names = 0;
  double most = 0;
  for (const Bars::Bar& bar : drawing.bars) {
    names = std::max(names, std::min(kMostName, DisplayWidth(bar.name)));
    most = std::max(most, bar.value);
  }
  std::string out;
  for (const Bars::Bar& bar : drawing.bars) {
    const double part = most > 0 ? bar.value / most : 0;
    const auto width = static_cast<size_t>(std::lround(kWidest * part));
    out += "  " + Padded(bar.name, names) + "  " + std::string(width, '#') +
           (width > 0 ? " " : "") + bar.text + "\n";
  }
  return out;
}

// The point of a line that lies nearest to x.
double NearestY(const Plot::Line& line, double x) {
  const auto nearest = std::min_element(
      line.points.begin(), line.points.end(),
      [x](const auto& a, const auto& b) { return std::abs(a.first - x) < std::abs(b.first - x); });
  return nearest->second;
}

std::string PlotLines(const Plot& plot) {
  constexpr size_t kShown = 6, kLeast = 12, kFirst = 26;
  std::string out;
  if (!plot.lines.empty() && !plot.lines.front().points.empty()) {
    const auto& points = plot.lines.front().points;
    const size_t most = (kPageColumns - kFirst - 2) / plot.lines.size();
    std::vector<size_t> widths;
    for (const Plot::Line& line : plot.lines) {
      widths.push_back(std::min(most, std::max(kLeast, DisplayWidth(line.name) + 2)));
    }
    out += "  " + Padded(plot.x_title, kFirst);
    for (size_t i = 0; i < widths.size(); ++i) {
      out += Padded(plot.lines[i].name, widths[i], true);
    }
    out += "\n";
    const size_t shown = std::min(kShown, points.size());
    for (size_t i = 0; i < shown; ++i) {
      const size_t at = shown == 1 ? 0 : i * (points.size() - 1) / (shown - 1);
      const double x = points[at].first;
      out += "  " + Padded(plot.x_label(x), kFirst);
      for (size_t column = 0; column < widths.size(); ++column) {
        out += Padded(plot.y_label(NearestY(plot.lines[column], x)), widths[column], true);
      }
      out += "\n";
    }
  }
  for (const Plot::Mark& mark : plot.marks) {
    out += fmt::format("  o {}: {}, {}\n", mark.name, plot.x_label(mark.x), plot.y_label(mark.y));
  }
  for (const Plot::Rule& rule : plot.rules) {
    out += fmt::format("  | {}: {}\n", rule.name,
                       rule.vertical ? plot.x_label(rule.at) : plot.y_label(rule.at));
  }
  return out;
}

// Tenths: "#" is all, "9" nearly all, "." next to nothing.
char Tenths(double value) {
  if (value < 0) return ' ';
  if (value >= 1) return '#';
  const int tenths = static_cast<int>(std::min(9.0, value * 10));
  return tenths == 0 ? '.' : static_cast<char>('0' + tenths);
}

std::string HeatLines(const HeatMap& map) {
  constexpr size_t kMostName = 24;
  size_t names = 0;
  for (const std::string& name : map.row_names) {
    names = std::max(names, std::min(kMostName, DisplayWidth(name)));
  }
  std::string out;
  for (size_t i = 0; i < map.rows.size(); ++i) {
    out += "  " + Padded(map.row_names[i], names, true) + " |";
    for (const double value : map.rows[i]) out += {' ', Tenths(value)};
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

std::string CellLines(const Cells& cells) {
  size_t names = 0;
  for (const Cells::Row& row : cells.rows) names = std::max(names, DisplayWidth(row.name));
  std::string out;
  for (const Cells::Row& row : cells.rows) {
    out += "  " + Padded(row.name, names) + "  ";
    size_t used = names + 4;
    for (const Cells::Cell& cell : row.cells) {
      const std::string text = "[" + (cell.text.empty() ? " " : cell.text) + "]";
      if (used + DisplayWidth(text) > kPageColumns) {
        used = names + 4;
        out += "\n" + std::string(used, ' ');
      }
      out += text;
      used += DisplayWidth(text);
    }
    out += "\n";
  }
  return out;
}

std::string TurnLines(const Turns& turns) {
  std::string out;
  for (const Turns::Circle& circle : turns.circles) {
    out += "  " + Padded(circle.name, 44);
    for (const double angle : circle.angles) {
      out += fmt::format("{:>8.1f}", angle * 180 / std::numbers::pi);
    }
    out += "\n";
  }
  return out + "  (degrees, by position)\n";
}

struct DrawingText {
  std::string operator()(const Bars& d) const { return BarLines(d); }
  std::string operator()(const Plot& d) const { return PlotLines(d); }
  std::string operator()(const HeatMap& d) const { return HeatLines(d); }
  std::string operator()(const Cells& d) const { return CellLines(d); }
  std::string operator()(const Turns& d) const { return TurnLines(d); }
};

}  // namespace

std::string FigureText(const Figure& figure) {
  return std::visit(DrawingText{}, figure.drawing);
}

}  // namespace lucid
