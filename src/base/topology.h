// How many CPUs and cores this process may use: its affinity mask and the CPU quota of its control
// group. PhysicalCoreCount() itself is declared in base/thread_pool.h, beside its only use.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace lucid {

// CPUs (hardware threads) in the affinity mask of the calling thread, at least 1.
int AllowedCpuCount();

// CPUs that a control group's `cpu.max` grants, rounded up: "150000 100000" is 2; nothing for "max
// 100000" or text of another form. Source: Linux Documentation/admin-guide/cgroup-v2.rst, section
// "CPU Interface Files".
std::optional<int> CpusOfQuota(std::string_view cpu_max);

// The least that any of this process's control groups and the groups around them grants, rounded
// up; nothing without a limit. Reads /proc/self/cgroup and what it leads to in /sys/fs/cgroup
// under `root`: `cpu.max` of version 2, `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1.
// A container may see only its own group, mounted as the topmost: that one is always looked at.
// Source: also Linux Documentation/scheduler/sched-bwc.rst.
std::optional<int> CgroupCpus(const std::filesystem::path& root);

}  // namespace lucid
