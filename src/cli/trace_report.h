// What `lucid trace` prints: the flow of shapes, and of a run what was seen in it; a function and a
// file for each format. docs/trace.md explains the output and has the schema of the JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/invariants.h"
#include "engine/shape_flow.h"
#include "engine/trace.h"
#include "engine/values.h"

namespace lucid::cli {

struct TraceReport {
  std::string model;   // as it was asked for
  bool fused = false;  // the plan as it runs
  ShapeFlow flow;
  // Of a run; empty where there was none, or where it was not asked for.
  ByPhase<std::vector<TracedOp>> ran;
  ByPhase<std::vector<ValueSummary>> values;
  ByPhase<std::vector<AttentionMap>> attention;
  std::vector<InvariantResult> invariants;
};

// For a terminal.
std::string TraceFlowText(const TraceReport& report);
std::string InvariantsText(const std::vector<InvariantResult>& invariants);
nlohmann::ordered_json TraceFlowJson(const TraceReport& report);
// A page that needs nothing but itself (account/html_page.h), equal layers folded.
std::string TraceFlowHtml(const TraceReport& report);

}  // namespace lucid::cli
