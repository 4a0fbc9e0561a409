// A graph in the language of Graphviz: `dot -Tsvg` draws it.
#include <fmt/format.h>

#include "plan/graph_drawing.h"
#include "plan/graph_labels.h"
#include "plan/graph_render.h"

namespace lucid {
namespace {

// Text of a quoted string.
std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

std::string Label(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : "\\n") + Escape(line);
  return out;
}

const char* Style(DrawnNode::Kind kind) {
  switch (kind) {
    case DrawnNode::Kind::kOp:
      return "";
    case DrawnNode::Kind::kPort:
      return ", shape=ellipse, style=dashed";
    case DrawnNode::Kind::kCache:
      return ", shape=cylinder, fillcolor=\"#fdf1dc\"";
  }
  return "";
}

}  // namespace

std::string GraphDot(const Graph& graph, const GraphHeading& heading) {
  const Drawing drawing = Draw(graph);
  std::string out = "digraph plan {\n";
  out += fmt::format("  label=\"{}\\n{}{}, {}\";\n  labelloc=t;\n", Escape(heading.model),
                     Escape(graph.plan->arch), heading.fused ? ", fused" : "",
                     Escape(PhaseText(graph)));
  out +=
      "  fontname=\"sans-serif\";\n"
      "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef4fb\", "
      "fontname=\"sans-serif\", "
      "fontsize=11];\n"
      "  edge [fontname=\"sans-serif\", fontsize=9, color=\"#555555\"];\n";
  for (size_t b = 0; b < drawing.blocks.size(); ++b) {
    out += fmt::format("  subgraph cluster_{} {{\n    label=\"{}\";\n    color=\"#888888\";\n", b,
                       Escape(drawing.blocks[b].title));
    for (const DrawnNode& node : drawing.blocks[b].nodes) {
      out +=
          fmt::format("    {} [label=\"{}\"{}];\n", node.id, Label(node.lines), Style(node.kind));
    }
    out += "  }\n";
  }
  for (const DrawnEdge& edge : drawing.edges) {
    out += fmt::format("  {} -> {} [label=\"{}\"{}];\n", edge.from, edge.to, Escape(edge.label),
                       edge.backward ? ", style=dashed, constraint=false" : "");
  }
  return out + "}\n";
}

}  // namespace lucid
