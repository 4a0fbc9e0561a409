// Counts cores with hwloc and reads the CPU quota; see topology.h.
#include "base/topology.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>

#include "base/thread_pool.h"

namespace lucid {
namespace {

// Cores with at least one hardware thread in the affinity mask, or 0 where hwloc cannot say.
int CoresInAffinityMask() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return 0;
  int cores = 0;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) == 0) {
      cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
      // That count leaves out cores of which only one of two siblings is allowed.
      int touched = 0;
      for (hwloc_obj_t core = nullptr;
           (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
        touched += hwloc_bitmap_intersects(core->cpuset, allowed) ? 1 : 0;
      }
      cores = std::max(cores, touched);
    }
    hwloc_bitmap_free(allowed);
  }
  hwloc_topology_destroy(topology);
  return cores;
}

std::string FirstLine(const std::filesystem::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

// What the files in a group's folder grant, of whichever version they are.
std::optional<int> QuotaOfGroup(const std::filesystem::path& group) {
  if (const std::optional<int> cpus = CpusOfQuota(FirstLine(group / "cpu.max"))) return cpus;
  return CpusOfQuota(FirstLine(group / "cpu.cfs_quota_us") + " " +
                     FirstLine(group / "cpu.cfs_period_us"));
}

// Whether a comma-separated list has "cpu".
bool HasCpuController(std::string_view list) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == "cpu") return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

int AllowedCpuCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::optional<int> CpusOfQuota(std::string_view cpu_max) {
  const char* end = cpu_max.data() + cpu_max.size();
  int64_t quota = 0;
  int64_t period = 0;
  const auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc() || quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, 1 << 20));
}

std::optional<int> CgroupCpus(const std::filesystem::path& root) {
  std::optional<int> least;
  const auto look = [&](const std::filesystem::path& group) {
    const std::optional<int> cpus = QuotaOfGroup(group);
    if (cpus) least = std::min(least.value_or(*cpus), *cpus);
  };
  // A line is "hierarchy:controllers:/path"; version 2 has no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !HasCpuController(controllers)) continue;
    const std::filesystem::path path =
        std::filesystem::path(line.substr(second + 1)).relative_path().lexically_normal();
    if (!path.empty() && *path.begin() == "..") continue;  // outside of what is mounted here
    // Where distributions mount the hierarchy: version 2 alone or beside version 1.
    using Mounts = std::array<std::string_view, 2>;
    const Mounts mounts =
        controllers.empty() ? Mounts{"", "unified"} : Mounts{"cpu,cpuacct", "cpu"};
    for (const std::string_view mount : mounts) {
      std::filesystem::path group = root / "sys/fs/cgroup" / mount;
      look(group);
      for (const std::filesystem::path& part : path) look(group /= part);
    }
  }
  return least;
}

int PhysicalCoreCount() {
  int cores = CoresInAffinityMask();
  if (cores <= 0) cores = AllowedCpuCount();
  return std::max(1, std::min(cores, CgroupCpus("/").value_or(cores)));
}

}  // namespace lucid
