#include "account/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/html_page.h"

namespace lucid::svg {
namespace {

std::string TitleOf(std::string_view title) {
  return title.empty() ? "" : fmt::format("<title>{}</title>", EscapeHtml(title));
}

}  // namespace

double Axis::At(double value) const {
  const double part = log ? (std::log10(value) - std::log10(from)) / std::log10(to / from)
                          : (value - from) / (to - from);
  return begin + (end - begin) * std::clamp(part, 0.0, 1.0);
}

std::vector<double> Axis::Ticks() const {
  constexpr double kNear = 1.001;
  std::vector<double> ticks;
  if (log) {  // decades that lie close are left out
    const double step = std::log10(to / from) > 8 ? 100 : 10;
    for (double at = from; at <= to * kNear; at *= step) ticks.push_back(at);
    return ticks;
  }
  constexpr int kSteps = 4;
  for (int i = 0; i <= kSteps; ++i) ticks.push_back(from + (to - from) * i / kSteps);
  return ticks;
}

Axis LogAxis(double least, double most, double begin, double end) {
  const double from = std::pow(10, std::floor(std::log10(least)));
  const double to = std::max(std::pow(10, std::ceil(std::log10(most))), from * 10);
  return {.from = from, .to = to, .begin = begin, .end = end, .log = true};
}

Axis LinearAxis(double most, double begin, double end) {
  if (!(most > 0)) return {.from = 0, .to = 1, .begin = begin, .end = end};
  const double decade = std::pow(10, std::floor(std::log10(most)));
  double to = 10 * decade;
  for (const double round : {1.0, 2.0, 4.0, 6.0, 8.0}) {
    if (round * decade >= most) {
      to = round * decade;
      break;
    }
  }
  return {.from = 0, .to = to, .begin = begin, .end = end};
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" style=\"{}\"/>\n", x1, y1, x2,
      y2, style);
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     EscapeHtml(text));
}

std::string Rect(double x, double y, double width, double height, std::string_view style,
                 std::string_view title) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "style=\"{}\">{}</rect>\n",
      x, y, width, height, style, TitleOf(title));
}

std::string Circle(double x, double y, double radius, std::string_view style,
                   std::string_view title) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" style=\"{}\">{}</circle>\n",
                     x, y, radius, style, TitleOf(title));
}

std::string Path(const std::vector<std::pair<double, double>>& points, std::string_view style) {
  std::string path;
  for (const auto& [x, y] : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, y);
  }
  return fmt::format("<path d=\"{}\" style=\"fill: none; {}\"/>\n", path, style);
}

std::string PlainLabel(double value) {
  return value == 0 || (value >= 0.01 && value < 1e6) ? fmt::format("{:g}", value)
                                                      : fmt::format("{:.0e}", value);
}

std::string Grid(const Axis& x, const Axis& y, std::string_view x_title, Label x_label,
                 Label y_label) {
  constexpr const char* kGrid = "stroke: var(--line)";
  std::string svg;
  for (const double at : x.Ticks()) {
    svg += Line(x.At(at), y.begin, x.At(at), y.end, kGrid);
    svg += Text(x.At(at), y.begin + 18, "middle", x_label(at));
  }
  for (const double at : y.Ticks()) {
    svg += Line(x.begin, y.At(at), x.end, y.At(at), kGrid);
    svg += Text(x.begin - 8, y.At(at) + 4, "end", y_label(at));
  }
  return svg + Text((x.begin + x.end) / 2, y.begin + 38, "middle", x_title);
}

std::string Document(double height, std::string_view what, std::string_view content) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
      "class=\"chart\">\n{}</svg>\n",
      kWidth, height, EscapeHtml(what), content);
}

std::string Legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string html = "<p class=\"legend\">";
  for (const auto& [colour, text] : entries) {
    if (text.empty()) continue;
    html += fmt::format("<span><i style=\"background: var({})\"></i>{}</span> ", colour,
                        EscapeHtml(text));
  }
  return html + "</p>\n";
}

std::string_view Style() {
  return R"css(
svg.chart { display: block; width: 100%; max-width: 760px; height: auto; }
p.legend { margin: 4px 0; }
p.legend span { margin-right: 18px; white-space: nowrap; }
p.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
)css";
}

}  // namespace lucid::svg
