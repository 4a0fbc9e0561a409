#include "cli/limits_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/command.h"

namespace lucid::cli {
namespace {

// The numbers of threads that were measured, in their order.
std::vector<int> Columns(const Machine& machine) {
  std::vector<int> threads;
  for (const ThreadCost& clock : machine.clocks) threads.push_back(clock.threads);
  return threads;
}

// A row whose cell for n threads is text(n), or "-" where that is empty.
std::string Row(const std::string& name, const std::vector<int>& columns,
                const std::function<std::string(int)>& text) {
  std::string row = fmt::format("| {} |", name);
  for (const int threads : columns) {
    const std::string cell = text(threads);
    row += fmt::format(" {} |", cell.empty() ? "-" : cell);
  }
  return row + "\n";
}

std::string ReadRows(const Machine& machine, const std::vector<int>& columns) {
  std::string rows;
  std::vector<const ReadSpeed*> kinds;  // one of each size and kind of pages
  for (const ReadSpeed& read : machine.reads) {
    const bool known = std::any_of(kinds.begin(), kinds.end(), [&read](const ReadSpeed* k) {
      return k->bytes == read.bytes && k->huge_pages == read.huge_pages;
    });
    if (!known) kinds.push_back(&read);
  }
  for (const ReadSpeed* kind : kinds) {
    const std::string name =
        fmt::format("read {}, {}, GB/s", DecimalBytes(static_cast<double>(kind->bytes)),
                    kind->huge_pages ? "huge pages" : "4 KB pages");
    rows += Row(name, columns, [&](int threads) -> std::string {
      for (const ReadSpeed& read : machine.reads) {
        if (read.bytes == kind->bytes && read.huge_pages == kind->huge_pages &&
            read.threads == threads) {
          return fmt::format("{:.1f} ({})", read.bytes_per_second / 1e9, read.how);
        }
      }
      return "";
    });
  }
  return rows;
}

std::string PeakRows(const Machine& machine, const std::vector<int>& columns) {
  std::string rows;
  for (const ComputePeak& kind : machine.peaks) {
    if (columns.empty() || kind.threads != columns.front()) continue;
    rows += Row(
        fmt::format("{} {}, GMAC/s", kind.numbers, kind.isa), columns,
        [&](int threads) -> std::string {
          for (const ComputePeak& peak : machine.peaks) {
            if (peak.isa == kind.isa && peak.numbers == kind.numbers && peak.threads == threads) {
              return fmt::format("{:.0f}", peak.macs_per_second / 1e9);
            }
          }
          return "";
        });
  }
  return rows;
}

std::string CostRow(const std::string& name, const std::vector<ThreadCost>& costs, double scale,
                    int digits, const std::vector<int>& columns) {
  return Row(name, columns, [&](int threads) -> std::string {
    for (const ThreadCost& cost : costs) {
      if (cost.threads == threads) return fmt::format("{:.{}f}", cost.value * scale, digits);
    }
    return "";
  });
}

}  // namespace

std::string DecimalBytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.{}f} MB", bytes / 1e6, bytes >= 1e8 ? 0 : 1);
  return fmt::format("{:.1f} kB", bytes / 1e3);
}

std::string LimitsText(const Machine& machine) {
  std::string text = fmt::format(
      "{}: {} cores, {} CPUs, level-3 cache {}, huge pages: {}\n"
      "measured {} in {:.1f} s; meanwhile a hypervisor took {:.1f} % of the CPU time and other "
      "processes {:.1f} %\n\n",
      machine.cpu, machine.cores, machine.cpus, FormatBytes(machine.l3_bytes),
      machine.huge_pages.empty() ? "unknown" : machine.huge_pages, machine.measured_at,
      machine.seconds, machine.steal * 100, machine.other_load * 100);
  const std::vector<int> columns = Columns(machine);
  text += Row("", columns, ThreadsText);
  text += "| --- |" + [&columns] {
    std::string rule;
    for (size_t i = 0; i < columns.size(); ++i) rule += " ---: |";
    return rule;
  }() + "\n";
  text += ReadRows(machine, columns) + PeakRows(machine, columns);
  text += CostRow("clock, GHz", machine.clocks, 1e-9, 2, columns);
  text += CostRow("barrier, ns", machine.barriers, 1e9, 0, columns);
  text += "\n";
  if (Disturbance(machine) > kMostDisturbance) {
    text +=
        "Warning: so much of the CPU time went elsewhere that these figures say less about the "
        "machine than about its load.\n";
  } else if (const double ratio = TwoThreadsOverOne(machine); ratio > 0) {
    text += fmt::format("Two threads do {:.2f} times the work of one: {}.\n", ratio,
                        ratio < kSharedCoreRatio ? "they share a core" : "two cores");
  }
  for (const Refusal& refusal : machine.refused) {
    text += fmt::format("Not measured: {}: {}.\n", refusal.isa, refusal.reason);
  }
  for (const std::string& note : machine.notes) text += fmt::format("Note: {}.\n", note);
  return text;
}

std::string DispatchText(const std::vector<IsaStatus>& rows) {
  std::string text =
      "| kernels | used | why not | needs of the CPU | for the ops |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const IsaStatus& row : rows) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", row.isa, row.refused.empty() ? "yes" : "no",
                        row.refused, row.needs, row.ops);
  }
  return text;
}

}  // namespace lucid::cli
