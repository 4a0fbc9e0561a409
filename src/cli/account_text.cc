// The table of `lucid account`, for terminals.
#include <fmt/format.h>

#include <algorithm>

#include "cli/account_report.h"
#include "cli/account_tables.h"

namespace lucid::cli {
namespace {

// Columns as wide as their widest cell.
std::string TableText(const ReportTable& table) {
  std::vector<const std::vector<std::string>*> rows = {&table.head};
  for (const auto& row : table.rows) rows.push_back(&row);
  std::vector<size_t> widths(table.head.size(), 0);
  for (const auto* row : rows) {
    for (size_t i = 0; i < row->size(); ++i) widths[i] = std::max(widths[i], (*row)[i].size());
  }
  std::string text;
  for (const auto* row : rows) {
    std::string line;
    for (size_t i = 0; i < row->size(); ++i) {
      line += i < table.left ? fmt::format(" {:<{}} ", (*row)[i], widths[i])
                             : fmt::format(" {:>{}} ", (*row)[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += " " + line + "\n";
  }
  return text;
}

}  // namespace

std::string AccountText(const Study& study, bool full) {
  std::string text = AccountTitle(study) + "\n" + HardwareText(study) + "\n\n";
  text += TableText(WeightTable(study)) + "\n";
  for (const std::string& finding : AccountFindings(study)) text += "- " + finding + "\n";
  text += "\n" + TableText(KvTable(study)) + "\n" + TableText(MemoryTable(study));
  const auto add = [&](const PhaseStudy& phase, bool prefill) {
    text += "\n" + PhaseHeading(study, phase, prefill) + "\n" +
            TableText(PhaseTable(phase, full, prefill));
  };
  if (study.prefill) add(*study.prefill, true);
  if (study.decode) add(*study.decode, false);
  return text;
}

}  // namespace lucid::cli
