#include "base/numa.h"

#include <hwloc.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>

namespace lucid {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Result<std::string> Isolate(hwloc_topology_t topology, int nodes) {
  const Bitmap here(hwloc_bitmap_alloc());
  const Bitmap allowed(hwloc_bitmap_alloc());
  if (hwloc_get_last_cpu_location(topology, here.get(), HWLOC_CPUBIND_THREAD) != 0 ||
      hwloc_get_cpubind(topology, allowed.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return Err(ErrorCode::kIo, "cannot find out on which CPU this process runs: {}",
               std::strerror(errno));
  }
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (!hwloc_bitmap_intersects(node->cpuset, here.get())) continue;
    hwloc_bitmap_and(allowed.get(), allowed.get(), node->cpuset);
    if (hwloc_set_cpubind(topology, allowed.get(), HWLOC_CPUBIND_THREAD) != 0) {
      return Err(ErrorCode::kIo, "cannot bind threads to the CPUs of memory node {}: {}",
                 node->os_index, std::strerror(errno));
    }
    return fmt::format("threads stay on the {} CPUs of memory node {} of {}",
                       hwloc_bitmap_weight(allowed.get()), node->os_index, nodes);
  }
  return Err(ErrorCode::kIo, "the CPU on which this process runs belongs to no memory node");
}

Result<std::string> Distribute(hwloc_topology_t topology, int nodes) {
  if (hwloc_set_membind(topology, hwloc_topology_get_allowed_nodeset(topology),
                        HWLOC_MEMBIND_INTERLEAVE,
                        HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0) {
    return Err(ErrorCode::kIo, "cannot spread memory over {} memory nodes: {}", nodes,
               std::strerror(errno));
  }
  return fmt::format("memory comes from all {} memory nodes in turn", nodes);
}

}  // namespace

Result<std::string> UseNuma(NumaMode mode) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Err(ErrorCode::kIo, "hwloc cannot start");
  const Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) {
    return Err(ErrorCode::kIo, "cannot read how the machine's CPUs and memory are arranged");
  }
  const int nodes = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE);
  if (nodes <= 1) {
    return std::string("this machine has one memory node, so there is nothing to arrange");
  }
  return mode == NumaMode::kIsolate ? Isolate(raw, nodes) : Distribute(raw, nodes);
}

}  // namespace lucid
