#include "plan/graph_lanes.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lucid {
namespace {

// Which results of the block's ops other blocks (or later layers of this one) read: node, output.
std::set<std::pair<int32_t, int32_t>> LeavingValues(const Graph& graph, size_t block) {
  std::set<std::pair<int32_t, int32_t>> leaving;
  for (const GraphBlock& reader : graph.blocks) {
    for (const GraphPort& port : reader.ports) {
      for (const GraphLink& link : port.links) {
        if (static_cast<size_t>(link.block) == block) leaving.emplace(link.node, link.output);
      }
    }
  }
  return leaving;
}

class LaneMaker {
 public:
  LaneMaker(const Graph& graph, size_t block)
      : graph_(graph), block_(graph.blocks[block]), leaving_(LeavingValues(graph, block)) {}

  GraphLanes Run() {
    FindWires();
    for (GraphWire& wire : lanes_.wires) {
      if (wire.from < 0) Take(wire, FreeLane());
    }
    const auto rows = static_cast<int32_t>(block_.nodes.size());
    for (int32_t row = 0; row < rows; ++row) PlaceRow(row);
    lanes_.count = static_cast<int32_t>(busy_until_.size());
    return std::move(lanes_);
  }

 private:
  void FindWires() {
    for (const GraphPort& port : block_.ports) {
      lanes_.wires.push_back({.value = port.value, .lane = 0, .from = -1, .to = -1, .readers = {}});
    }
    const auto rows = static_cast<int32_t>(block_.nodes.size());
    for (int32_t row = 0; row < rows; ++row) {
      const Op& op = graph_.op(block_.nodes[static_cast<size_t>(row)]);
      for (size_t k = 0; k < op.outputs.size(); ++k) {
        const bool leaves = leaving_.contains({row, static_cast<int32_t>(k)});
        lanes_.wires.push_back({.value = op.outputs[k],
                                .lane = 0,
                                .from = row,
                                .to = leaves ? rows : row,
                                .readers = {}});
      }
    }
    for (int32_t row = 0; row < rows; ++row) {
      for (const GraphInput& input : block_.nodes[static_cast<size_t>(row)].inputs) {
        if (input.source != GraphSource::kNode && input.source != GraphSource::kPort) continue;
        GraphWire& wire = *std::find_if(lanes_.wires.begin(), lanes_.wires.end(),
                                        [&](const GraphWire& w) { return w.value == input.value; });
        if (wire.readers.empty() || wire.readers.back() != row) wire.readers.push_back(row);
        wire.to = std::max(wire.to, row);
      }
    }
  }

  // The op goes where an operand ends, the leftmost, so that chains run straight.
  void PlaceRow(int32_t row) {
    int32_t lane = -1;
    for (const GraphWire& wire : lanes_.wires) {
      if (wire.from >= row || wire.to != row || wire.readers.empty()) continue;
      busy_until_[static_cast<size_t>(wire.lane)] = row;
      if (lane < 0 || wire.lane < lane) lane = wire.lane;
    }
    row_ = row;
    if (lane < 0) lane = FreeLane();
    lanes_.node_lanes.push_back(lane);
    bool first = true;
    for (GraphWire& wire : lanes_.wires) {
      if (wire.from != row) continue;
      Take(wire, first ? lane : FreeLane());
      first = false;
    }
  }

  int32_t FreeLane() {
    for (size_t i = 0; i < busy_until_.size(); ++i) {
      if (busy_until_[i] < row_) return static_cast<int32_t>(i);
    }
    busy_until_.push_back(row_ - 1);
    return static_cast<int32_t>(busy_until_.size()) - 1;
  }

  void Take(GraphWire& wire, int32_t lane) {
    wire.lane = lane;
    busy_until_[static_cast<size_t>(lane)] = std::max(wire.to, row_);
  }

  const Graph& graph_;
  const GraphBlock& block_;
  std::set<std::pair<int32_t, int32_t>> leaving_;
  GraphLanes lanes_;
  std::vector<int32_t> busy_until_;  // by lane: the last row that its wire reaches
  int32_t row_ = -1;
};

}  // namespace

GraphLanes LayOutLanes(const Graph& graph, size_t block) {
  return LaneMaker(graph, block).Run();
}

}  // namespace lucid
