// Pieces of charts as inline SVG, for HTML pages: axes, lines, marks, legends, in the colours of
// html_page.h (both schemes). Neighbours: html_page.h (the page around them), units.h (labels).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lucid::svg {

inline constexpr double kWidth = 760;  // of every chart, in units of its own; pages scale it
// What a chart with axes leaves for labels.
inline constexpr double kLeft = 86, kRight = 30, kTop = 16, kBottom = 46;

// Values [from, to] at [begin, end] of the chart; logarithmic ones lie between powers of ten.
struct Axis {
  double from = 0, to = 1;
  double begin = 0, end = 100;
  bool log = false;

  double At(double value) const;      // clamped to [begin, end]
  std::vector<double> Ticks() const;  // where grid lines and labels belong
};
// Whole powers of ten that hold both.
Axis LogAxis(double least, double most, double begin, double end);
// From 0 to a round number that is at least `most`.
Axis LinearAxis(double most, double begin, double end);

// `style` is CSS, as in "stroke: var(--line)".
std::string Line(double x1, double y1, double x2, double y2, std::string_view style);
// anchor: "start", "middle" or "end".
std::string Text(double x, double y, std::string_view anchor, std::string_view text);
// `title`: what a reader sees who points at it; may be empty.
std::string Rect(double x, double y, double width, double height, std::string_view style,
                 std::string_view title = {});
std::string Circle(double x, double y, double radius, std::string_view style,
                   std::string_view title = {});
// Points in units of the chart, joined.
std::string Path(const std::vector<std::pair<double, double>>& points, std::string_view style);

// Writes a value of an axis.
using Label = std::string (*)(double value);
// "0.5", "1e+09".
std::string PlainLabel(double value);
// Grid lines, labels, and the title of the x axis.
std::string Grid(const Axis& x, const Axis& y, std::string_view x_title, Label x_label,
                 Label y_label);

// The whole chart; `what` says what it shows to those who cannot see it.
std::string Document(double height, std::string_view what, std::string_view content);
// Coloured marks ("--c1") with words, below a chart: text beside no line can overlap another. Those
// without words are left out.
std::string Legend(const std::vector<std::pair<std::string, std::string>>& entries);
// Rules that Document and Legend need, for HtmlPage::style.
std::string_view Style();

}  // namespace lucid::svg
