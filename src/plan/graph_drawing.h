// What the formats that draw nodes and edges share (graph_dot.cc, graph_mermaid.cc): the nodes of a
// graph beside its ops, and all its edges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/graph.h"

namespace lucid {

struct DrawnNode {
  enum class Kind : int8_t { kOp, kPort, kCache };
  Kind kind = Kind::kOp;
  std::string id;                  // "b1n3": an identifier in both languages
  std::vector<std::string> lines;  // of its label
};

struct DrawnEdge {
  std::string from, to;   // ids
  std::string label;      // the value's shape, or which layers
  bool backward = false;  // from a layer to one like it
};

struct DrawnBlock {
  std::string title;
  std::vector<DrawnNode> nodes;
};

struct Drawing {
  std::vector<DrawnBlock> blocks;
  std::vector<DrawnEdge> edges;
};

Drawing Draw(const Graph& graph);

}  // namespace lucid
