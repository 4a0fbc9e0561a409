// Counts cores with hwloc and reads the CPU quota; see topology.h.
#include "base/topology.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
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

int PhysicalCoreCount() {
  int cores = CoresInAffinityMask();
  if (cores <= 0) cores = AllowedCpuCount();
  std::string quota;
  // Inside a container this is the container's own group; on a host without a limit the file is
  // absent.
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file && std::getline(file, quota)) {
    if (const std::optional<int> cpus = CpusOfQuota(quota)) cores = std::min(cores, *cpus);
  }
  return std::max(1, cores);
}

}  // namespace lucid
