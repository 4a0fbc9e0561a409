#include "account/cpu_time.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace lucid {
namespace {

std::optional<CpuTime> Now() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  return ParseCpuTime(line);
}

double OwnSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::optional<CpuTime> ParseCpuTime(std::string_view proc_stat) {
  std::istringstream words{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  words >> name;
  if (name != "cpu") return std::nullopt;
  std::vector<double> ticks;
  for (double value = 0; words >> value;) ticks.push_back(value);
  // user nice system idle iowait irq softirq steal; guest time is in user already.
  if (ticks.size() < 8) return std::nullopt;
  return CpuTime{.busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6],
                 .idle = ticks[3] + ticks[4],
                 .steal = ticks[7]};
}

CpuTimeWatch::CpuTimeWatch() : start_(Now()), own_seconds_(OwnSeconds()) {}

CpuTimeWatch::Shares CpuTimeWatch::Stop() const {
  const std::optional<CpuTime> end = Now();
  if (!start_ || !end) return {};
  const double steal = end->steal - start_->steal;
  const double busy = end->busy - start_->busy;
  const double total = busy + steal + end->idle - start_->idle;
  if (total <= 0) return {};
  const double own = (OwnSeconds() - own_seconds_) * static_cast<double>(sysconf(_SC_CLK_TCK));
  return {.steal = steal / total, .others = std::max(0.0, busy - own) / total};
}

}  // namespace lucid
