// The table of `lucid account`, for terminals.
#include <fmt/format.h>

#include "cli/account_report.h"
#include "cli/account_tables.h"
#include "cli/report_table.h"

namespace lucid::cli {
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
