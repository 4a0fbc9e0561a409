// A graph as a Mermaid flowchart, for Markdown pages that draw those.
#include <fmt/format.h>

#include "plan/graph_drawing.h"
#include "plan/graph_labels.h"
#include "plan/graph_render.h"

namespace lucid {
namespace {

// Text between quotes: what Mermaid or HTML would take for markup as entities of Mermaid's kind.
std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "#quot;";
        break;
      case '#':
        out += "#35;";
        break;
      case '<':
        out += "#lt;";
        break;
      case '>':
        out += "#gt;";
        break;
      case '&':
        out += "#amp;";
        break;
      case '`':  // would begin Markdown
        out += "#96;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

std::string Label(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : "<br/>") + Escape(line);
  return out;
}

std::string NodeText(const DrawnNode& node) {
  const std::string label = Label(node.lines);
  switch (node.kind) {
    case DrawnNode::Kind::kOp:
      return fmt::format("{}[\"{}\"]", node.id, label);
    case DrawnNode::Kind::kPort:
      return fmt::format("{}([\"{}\"])", node.id, label);
    case DrawnNode::Kind::kCache:
      return fmt::format("{}[(\"{}\")]", node.id, label);
  }
  return "";
}

}  // namespace

std::string GraphMermaid(const Graph& graph, const GraphHeading& heading) {
  const Drawing drawing = Draw(graph);
  std::string out = fmt::format("%% {}, {}{}, {}\nflowchart TD\n", Escape(heading.model),
                                graph.plan->arch, heading.fused ? ", fused" : "", PhaseText(graph));
  for (size_t b = 0; b < drawing.blocks.size(); ++b) {
    out += fmt::format("  subgraph b{}[\"{}\"]\n", b, Escape(drawing.blocks[b].title));
    for (const DrawnNode& node : drawing.blocks[b].nodes) out += "    " + NodeText(node) + "\n";
    out += "  end\n";
  }
  for (const DrawnEdge& edge : drawing.edges) {
    out += fmt::format("  {} {}|\"{}\"| {}\n", edge.from, edge.backward ? "-.->" : "-->",
                       Escape(edge.label), edge.to);
  }
  return out;
}

}  // namespace lucid
