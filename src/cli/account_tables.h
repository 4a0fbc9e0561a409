// What `lucid account` says of a Study, as tables and sentences: the table and the page print the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/report_table.h"
#include "engine/study.h"

namespace lucid::cli {

struct PartSum {
  int64_t params = 0, bytes = 0;
  std::map<DType, int64_t> types;  // bytes of each
};
std::array<PartSum, kParts> PartSums(const Study& study);

ReportTable WeightTable(const Study& study);
ReportTable KvTable(const Study& study);
ReportTable MemoryTable(const Study& study);
// `full`: every op of every layer; `with_square`: FLOPs without a causal mask too.
ReportTable PhaseTable(const PhaseStudy& phase, bool full, bool with_square);

std::string AccountTitle(const Study& study);
// Its figures, the units, in two lines.
std::string HardwareText(const Study& study);
// What was computed, and how fast: two lines.
std::string PhaseHeading(const Study& study, const PhaseStudy& phase, bool prefill);
// What follows from the numbers, a sentence each.
std::vector<std::string> AccountFindings(const Study& study);

}  // namespace lucid::cli
