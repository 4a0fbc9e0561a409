// What must hold of every graph's wires, for tests.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plan/graph.h"
#include "plan/graph_lanes.h"

namespace lucid {

// Two wires of the block that share a lane at one place, or an op's dot that lies on a wire which
// passes by; "" where there are none.
inline std::string LaneCollision(const Graph& graph, size_t block) {
  const GraphLanes lanes = LayOutLanes(graph, block);
  if (lanes.node_lanes.size() != graph.blocks[block].nodes.size()) return "an op has no lane";
  for (size_t i = 0; i < lanes.wires.size(); ++i) {
    const GraphWire& a = lanes.wires[i];
    if (a.lane < 0 || a.lane >= lanes.count) return fmt::format("wire {} has no lane", i);
    for (size_t j = i + 1; j < lanes.wires.size(); ++j) {
      const GraphWire& b = lanes.wires[j];
      // One may begin in the dot where the other ends.
      const bool meet = std::max(a.from, b.from) < std::min(a.to, b.to);
      if (meet && a.lane == b.lane) return fmt::format("wires {} and {} share a lane", i, j);
    }
    for (int32_t row = a.from + 1; row < a.to; ++row) {
      if (lanes.node_lanes[static_cast<size_t>(row)] == a.lane) {
        return fmt::format("op {} lies on wire {}", row, i);
      }
    }
  }
  return "";
}

}  // namespace lucid
