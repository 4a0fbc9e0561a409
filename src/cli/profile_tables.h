// What `lucid profile` says of a Profile, as tables and sentences: the text and the page print the
// same. Neighbours: profile_report.h (the outputs), engine/profile.h (the numbers).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report_table.h"
#include "engine/profile.h"

namespace lucid::cli {

// Ops of a pass, summed up.
struct ProfileRow {
  std::string name;   // "blk.*.attn_q", with `full` "blk.0.attn_q"; of kinds "linear"
  int64_t count = 0;  // of ops
  std::string weights;
  std::string_view kernel;
  Cost cost;
  double predicted = 0;               // seconds
  double memory = 0, arithmetic = 0;  // its parts
  StepTimes::OpSeconds measured;
  CauseTimes residual;

  int64_t memory_bytes() const {
    return cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes;
  }
  double residual_seconds() const { return measured.total() - predicted; }
};
// Equal ops of all layers together; `full`: every op by itself.
std::vector<ProfileRow> ProfileRows(const ProfiledPhase& phase, bool full);
// By kind of op, the longest first.
std::vector<ProfileRow> KindRows(const ProfiledPhase& phase);

ReportTable ProfileOpTable(const ProfiledPhase& phase, bool full);
ReportTable ProfileKindTable(const ProfiledPhase& phase);
// Where the step's time is that no op has.
ReportTable ProfileStepTable(const ProfiledPhase& phase);
// A line for every layer, all phases beside each other.
ReportTable ProfileLayerTable(const Profile& profile);

// From the limit to what was measured: the first and the last bar are sums, the others what lies
// between.
struct WaterfallBar {
  std::string label;
  double seconds = 0;
  bool sum = false;
};
std::vector<WaterfallBar> Waterfall(const Profile& profile, const ProfiledPhase& decode);
ReportTable WaterfallTable(const Profile& profile, const ProfiledPhase& decode);

std::string ProfileTitle(const Engine& engine, const Profile& profile);
// What ran and how fast: two lines.
std::string ProfileHeading(const ProfiledPhase& phase);
// What follows from the numbers, a sentence each.
std::vector<std::string> ProfileFindings(const ProfiledPhase& phase);

// "prefill" or "decode".
std::string_view PhaseName(const ProfiledPhase& phase);

}  // namespace lucid::cli
