// The roofline as a chart (Williams, Waterman and Patterson, 2009): FLOPs per second over FLOPs per
// byte from memory, the machine's roofs, a dot for whatever ran or would run. Neighbours: svg.h
// (its pieces), hardware.h (the roofs), predict.h and time_parts.h (what dots are made of).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "account/hardware.h"

namespace lucid {

struct RooflineDot {
  double intensity = 0, rate = 0;  // FLOPs per byte, FLOPs per second; both above 0
  std::string title;               // what a reader sees who points at it
  bool whole = false;              // a whole phase: drawn larger
  const char* colour = "--c1";     // of html_page.h
};

// The chart, and below it a legend: `entries` (colour and words) and what the roofs are.
std::string RooflineChart(const Hardware& hardware, const std::vector<RooflineDot>& dots,
                          std::vector<std::pair<std::string, std::string>> entries);

}  // namespace lucid
