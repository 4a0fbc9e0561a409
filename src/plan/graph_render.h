// A graph as text, JSON, Graphviz and Mermaid; account/graph_html.h makes a page of it. Each format
// has a file, graph_<format>.cc; graph_labels.h has the words that they share.
#pragma once

#include <string>

#include "plan/graph.h"

namespace lucid {

// What only the caller knows.
struct GraphHeading {
  std::string model;   // a path or a name
  bool fused = false;  // the plan as it runs
};

// For terminals: an op a line, in the order in which they run; of a trace, from its target
// backwards, an operand a line. Long lists in attributes are cut.
std::string GraphText(const Graph& graph, const GraphHeading& heading);

// One object; docs/plan.md describes it.
std::string GraphJson(const Graph& graph, const GraphHeading& heading);

// The language of Graphviz: a cluster for each block, caches as cylinders. Weights and the step's
// arrays stand in the op that reads them.
std::string GraphDot(const Graph& graph, const GraphHeading& heading);

// The same as a Mermaid flowchart.
std::string GraphMermaid(const Graph& graph, const GraphHeading& heading);

}  // namespace lucid
