// What the machine's CPUs did while something was measured, from /proc/stat: whether a hypervisor
// or another process took time away.
#pragma once

#include <optional>
#include <string_view>

namespace lucid {

// Since the machine started, all CPUs together, in the clock ticks of /proc/stat.
struct CpuTime {
  double busy = 0;   // in user and system code, interrupts included
  double idle = 0;   // and waiting for a disk
  double steal = 0;  // wanted to run, and the hypervisor ran something else
};

// The line "cpu ..." of /proc/stat. Nothing if it is not there. Source: Linux proc(5).
std::optional<CpuTime> ParseCpuTime(std::string_view proc_stat);

// Fractions of the time of all CPUs between construction and Stop.
class CpuTimeWatch {
 public:
  CpuTimeWatch();

  struct Shares {
    double steal = 0;
    double others = 0;  // busy, but not with this process
  };
  // Zeros where the system does not tell.
  Shares Stop() const;

 private:
  std::optional<CpuTime> start_;
  double own_seconds_ = 0;
};

}  // namespace lucid
