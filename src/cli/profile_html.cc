// The page of `lucid profile`: the tables, a roofline with a dot for every kind of op as it was
// measured, and the waterfall from the limit of decoding to what it reached.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/html_page.h"
#include "account/roofline_svg.h"
#include "account/svg.h"
#include "cli/account_rows.h"
#include "cli/profile_report.h"
#include "cli/profile_tables.h"

namespace lucid::cli {
namespace {

const char* ColourOf(const ProfiledPhase& phase) {
  return phase.prefill ? "--c2" : "--c1";
}

void AddDots(const ProfiledPhase& phase, std::vector<RooflineDot>& dots) {
  ProfileRow all;
  const auto add = [&](const std::string& name, const ProfileRow& row, bool whole) {
    const auto flops = static_cast<double>(row.cost.flops);
    const auto bytes = static_cast<double>(row.memory_bytes());
    const double seconds = row.measured.total();
    if (flops <= 0 || bytes <= 0 || seconds <= 0) return;
    dots.push_back({flops / bytes, flops / seconds,
                    fmt::format("{} {}: {:.2f} FLOP/byte, {}/s, {}/s, {} measured, {} predicted",
                                PhaseName(phase), name, flops / bytes, Flops(flops / seconds),
                                Bytes(bytes / seconds), Seconds(seconds), Seconds(row.predicted)),
                    whole, ColourOf(phase)});
  };
  for (const ProfileRow& row : ProfileRows(phase, false)) {
    add(row.name, row, false);
    all.cost += row.cost;
    all.predicted += row.predicted;
  }
  all.measured.work = phase.seconds;
  add("as a whole", all, true);
}

std::string Roofline(const Profile& profile) {
  std::vector<RooflineDot> dots;
  std::vector<std::pair<std::string, std::string>> entries;
  for (const ProfiledPhase& phase : profile.phases) {
    AddDots(phase, dots);
    entries.emplace_back(ColourOf(phase), PhaseName(phase));
  }
  return RooflineChart(profile.hardware, dots, entries) +
         "<p class=\"muted\">A dot is one kind of op in all layers as it was measured, a large one "
         "the whole step; point at it for its numbers. What lies above the slope came from a "
         "cache.</p>\n";
}

// Bars from left to right in time, each beginning where the one above ended.
std::string WaterfallChart(const Profile& profile, const ProfiledPhase& decode) {
  constexpr double kBar = 24, kGap = 8, kNames = 220, kNumbers = 150;
  const std::vector<WaterfallBar> bars = Waterfall(profile, decode);
  double most = 0, at = 0;
  for (const WaterfallBar& bar : bars) {
    at = bar.sum ? bar.seconds : at + bar.seconds;
    most = std::max(most, at);
  }
  const auto x = [&](double seconds) {
    return kNames + (svg::kWidth - kNames - kNumbers) * std::max(0.0, seconds) / most;
  };
  std::string chart;
  double top = 4, end = 0;
  for (const WaterfallBar& bar : bars) {
    const double begin = bar.sum ? 0 : end;
    end = begin + bar.seconds;
    const double left = x(std::min(begin, end)), right = x(std::max(begin, end));
    const char* colour = bar.sum ? "--c6" : bar.seconds < 0 ? "--c3" : "--c2";
    const std::string sign = bar.sum || bar.seconds <= 0 ? "" : "+";
    std::string number = sign + Seconds(bar.seconds);
    if (bar.sum) number += fmt::format(", {:.1f} tok/s", static_cast<double>(decode.tokens) / end);
    chart += svg::Text(kNames - 10, top + 16, "end", bar.label);
    chart += svg::Rect(left, top, std::max(1.0, right - left), kBar,
                       fmt::format("fill: var({})", colour), bar.label + ": " + number);
    chart += svg::Text(right + 8, top + 16, "start", number);
    if (&bar != &bars.back()) {
      chart += svg::Line(x(end), top + kBar, x(end), top + kBar + kGap,
                         "stroke: var(--muted); stroke-dasharray: 2 2");
    }
    top += kBar + kGap;
  }
  return svg::Document(top, "from the limit to the measured time of a step", chart) +
         svg::Legend({{"--c6", "limit and measured time"},
                      {"--c2", "takes longer"},
                      {"--c3", "takes less: a cache had it"}});
}

}  // namespace

std::string ProfileHtml(const Engine& engine, const Profile& profile, bool full) {
  std::string body = ParagraphHtml(ProfileTitle(engine, profile));
  const auto section = [&body](const std::string& title, const std::string& content) {
    body += fmt::format("<h2>{}</h2>\n<div class=\"card\">{}</div>\n", title, content);
  };
  section("Roofline", Roofline(profile));
  for (const ProfiledPhase& phase : profile.phases) {
    std::string content = ParagraphHtml(ProfileHeading(phase)) + "<ul>\n";
    for (const std::string& finding : ProfileFindings(phase)) {
      content += "<li>" + EscapeHtml(finding) + "</li>\n";
    }
    content += "</ul>\n";
    if (!phase.prefill) {
      content += WaterfallChart(profile, phase) + TableHtml(WaterfallTable(profile, phase));
    }
    content += TableHtml(ProfileOpTable(phase, full)) + TableHtml(ProfileKindTable(phase)) +
               TableHtml(ProfileStepTable(phase));
    section(phase.prefill ? "Prefill" : "Decode", content);
  }
  section("Layers", TableHtml(ProfileLayerTable(profile)));
  return RenderHtmlPage({.title = "lucid profile: " + engine.model().config.arch,
                         .style = std::string(svg::Style()),
                         .body = body,
                         .script = ""});
}

}  // namespace lucid::cli
