// The wires of a block drawn beside its ops, one row each: every value runs down a lane from the
// row that writes it to the last that reads it, and no two share a lane at one place. Used by
// account/graph_html.h.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/graph.h"

namespace lucid {

// A value of a block that ops read, of this block or of others.
struct GraphWire {
  Value value;
  int32_t lane = 0;
  int32_t from = 0;              // row: that of its op; -1: above the first, from another block
  int32_t to = 0;                // the last row it reaches; as many as there are ops: it leaves
  std::vector<int32_t> readers;  // rows, ascending
};

struct GraphLanes {
  int32_t count = 0;                // of lanes
  std::vector<int32_t> node_lanes;  // where each op's dot is
  std::vector<GraphWire> wires;     // those of the ports first
};

GraphLanes LayOutLanes(const Graph& graph, size_t block);

}  // namespace lucid
