#include "plan/graph_drawing.h"

#include <fmt/format.h>

#include <map>

#include "plan/graph_labels.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

std::string NodeId(size_t block, int64_t node) {
  return fmt::format("b{}n{}", block, node);
}

// A port with one link is no node: its edge goes from op to op.
bool IsDirect(const GraphPort& port) {
  return port.links.size() == 1;
}

std::vector<std::string> OpLabel(const Graph& graph, const GraphBlock& block,
                                 const GraphNode& node) {
  const Op& op = graph.op(node);
  std::vector<std::string> lines = {ShortName(block, op.name), std::string(Info(op.kind).name)};
  std::string arrays;
  for (const GraphInput& input : node.inputs) {
    const std::string label =
        input.value.present() ? InputLabel(graph, block, input) : std::string();
    if (input.source == GraphSource::kWeight) {
      lines.push_back(fmt::format("{} {} {}", input.role, label, WeightText(graph, input.value)));
    }
    if (input.source == GraphSource::kBatch) arrays += (arrays.empty() ? "" : ", ") + label;
  }
  if (!arrays.empty()) lines.push_back("reads " + arrays);
  if (const std::string attrs = ShortAttrs(op); !attrs.empty()) lines.push_back(attrs);
  return lines;
}

class Drawer {
 public:
  explicit Drawer(const Graph& graph) : graph_(graph) {}

  Drawing Run() {
    for (size_t b = 0; b < graph_.blocks.size(); ++b) AddBlock(b);
    return std::move(drawing_);
  }

 private:
  void AddBlock(size_t b) {
    const GraphBlock& block = graph_.blocks[b];
    DrawnBlock drawn{BlockTitle(graph_, block), {}};
    for (size_t p = 0; p < block.ports.size(); ++p) {
      if (IsDirect(block.ports[p])) continue;
      drawn.nodes.push_back(
          {DrawnNode::Kind::kPort, fmt::format("b{}p{}", b, p), {PortLabel(graph_, block, p)}});
      AddLinks(b, p, fmt::format("b{}p{}", b, p));
    }
    std::map<int32_t, std::string> caches;  // ids by value
    for (size_t n = 0; n < block.nodes.size(); ++n) {
      const GraphNode& node = block.nodes[n];
      const std::string id = NodeId(b, static_cast<int64_t>(n));
      for (const GraphInput& input : node.inputs) {
        if (input.source == GraphSource::kCache && !caches.contains(input.value.id)) {
          const std::string cache = fmt::format("b{}c{}", b, caches.size());
          caches[input.value.id] = cache;
          drawn.nodes.push_back({DrawnNode::Kind::kCache,
                                 cache,
                                 {InputLabel(graph_, block, input), "kept across steps"}});
        }
        AddInput(b, input, id, caches);
      }
      drawn.nodes.push_back({DrawnNode::Kind::kOp, id, OpLabel(graph_, block, node)});
    }
    drawing_.blocks.push_back(std::move(drawn));
  }

  void AddInput(size_t b, const GraphInput& input, const std::string& to,
                const std::map<int32_t, std::string>& caches) {
    if (input.source == GraphSource::kNode) {
      AddEdge(NodeId(b, input.index), to, ShapeOf(input.value));
    } else if (input.source == GraphSource::kCache) {
      AddEdge(caches.at(input.value.id), to, ShapeOf(input.value));
    } else if (input.source == GraphSource::kPort) {
      const GraphPort& port = graph_.blocks[b].ports[static_cast<size_t>(input.index)];
      if (IsDirect(port)) {
        AddLinks(b, static_cast<size_t>(input.index), to);
      } else {
        AddEdge(fmt::format("b{}p{}", b, input.index), to, ShapeOf(input.value));
      }
    }
  }

  void AddLinks(size_t b, size_t p, const std::string& to) {
    const GraphBlock& block = graph_.blocks[b];
    const GraphPort& port = block.ports[p];
    for (const GraphLink& link : port.links) {
      std::string label = ShapeOf(port.value);
      if (port.links.size() > 1) label += " " + LayersText(link.layers);
      const GraphBlock& from = graph_.blocks[static_cast<size_t>(link.block)];
      if (block.layers.empty() && from.layers.size() > 1) {
        label += " " + graph_.plan->Info(port.value).name;
      }
      AddEdge(NodeId(static_cast<size_t>(link.block), link.node), to, label,
              static_cast<size_t>(link.block) >= b);
    }
  }

  std::string ShapeOf(Value value) const { return graph_.plan->Info(value).shape.ToString(); }

  void AddEdge(std::string from, std::string to, std::string label, bool backward = false) {
    drawing_.edges.push_back({std::move(from), std::move(to), std::move(label), backward});
  }

  const Graph& graph_;
  Drawing drawing_;
};

}  // namespace

Drawing Draw(const Graph& graph) {
  return Drawer(graph).Run();
}

}  // namespace lucid
