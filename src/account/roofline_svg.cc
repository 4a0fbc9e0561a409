#include "account/roofline_svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "account/svg.h"
#include "account/units.h"

namespace lucid {

std::string RooflineChart(const Hardware& hardware, const std::vector<RooflineDot>& dots,
                          std::vector<std::pair<std::string, std::string>> entries) {
  const double ridge = hardware.Ridge();
  const double peak = hardware.FlopsFor(DType::kF16);
  double least = ridge / 10, most = ridge * 10, slowest = peak / 100, fastest = peak * 1.05;
  for (const RooflineDot& dot : dots) {
    least = std::min(least, dot.intensity);
    most = std::max(most, dot.intensity);
    slowest = std::min(slowest, dot.rate);
    fastest = std::max(fastest, dot.rate);
  }
  constexpr double kHeight = 420;
  const svg::Axis x = svg::LogAxis(least, most, svg::kLeft, svg::kWidth - svg::kRight);
  const svg::Axis y = svg::LogAxis(slowest, fastest, kHeight - svg::kBottom, svg::kTop);
  std::string chart = svg::Grid(x, y, "FLOP per byte from memory", svg::PlainLabel,
                                [](double value) { return units::Flops(value) + "/s"; });
  constexpr const char* kRoof = "stroke: var(--ink); stroke-width: 2";
  const double bandwidth = hardware.bytes_per_second;
  const double start = std::max(x.from, y.from / bandwidth);
  chart += svg::Line(x.At(start), y.At(start * bandwidth), x.At(ridge), y.At(peak), kRoof);
  chart += svg::Line(x.At(ridge), y.At(peak), x.end, y.At(peak), kRoof);
  chart += svg::Line(x.At(ridge), y.At(peak), x.At(ridge), y.begin,
                     "stroke: var(--muted); stroke-dasharray: 4 4");
  for (const RooflineDot& dot : dots) {
    chart += svg::Circle(x.At(dot.intensity), y.At(dot.rate), dot.whole ? 8 : 5,
                         fmt::format("fill: var({}); fill-opacity: {}; stroke: var(--card)",
                                     dot.colour, dot.whole ? 1 : 0.7),
                         dot.title);
  }
  entries.emplace_back(
      "--ink", fmt::format("roof: {}/s, {}/s", units::Bytes(bandwidth), units::Flops(peak)));
  entries.emplace_back("--muted", fmt::format("ridge: {:.0f} FLOP per byte", ridge));
  return svg::Document(kHeight, "roofline", chart) + svg::Legend(entries);
}

}  // namespace lucid
