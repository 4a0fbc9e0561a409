// How many CPUs and cores this process may use: its affinity mask and the CPU quota of its control
// group. PhysicalCoreCount() itself is declared in base/thread_pool.h, beside its only use.
#pragma once

#include <optional>
#include <string_view>

namespace lucid {

// CPUs (hardware threads) in the affinity mask of the calling thread, at least 1.
int AllowedCpuCount();

// CPUs that a control group's `cpu.max` grants, rounded up: "150000 100000" is 2; nothing for "max
// 100000" or text of another form. Source: Linux Documentation/admin-guide/cgroup-v2.rst, section
// "CPU Interface Files".
std::optional<int> CpusOfQuota(std::string_view cpu_max);

}  // namespace lucid
