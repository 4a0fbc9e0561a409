// A graph for terminals.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "plan/graph_labels.h"
#include "plan/graph_render.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

// Widths of the columns of a listing.
struct Columns {
  size_t name = 0;
  size_t kind = 0;
  size_t result = 0;
};

std::string ResultText(const Graph& graph, const Op& op) {
  if (op.outputs.size() > 1) return fmt::format("{} results", op.outputs.size());
  return ShapeText(graph, graph.plan->Info(op.outputs[0]).shape);
}

// "w=attn_q [576, 576] Q4_K", or the name alone where the role says the same.
std::string OperandText(const Graph& graph, const GraphBlock& block, const GraphInput& input) {
  const std::string label = InputLabel(graph, block, input);
  std::string text = input.role == label ? label : input.role + "=" + label;
  if (input.source == GraphSource::kWeight) text += " " + WeightText(graph, input.value);
  if (input.source == GraphSource::kOtherPhase) text += " (other phase)";
  return text;
}

Columns ColumnsOf(const Graph& graph) {
  Columns columns;
  for (const GraphBlock& block : graph.blocks) {
    for (const GraphNode& node : block.nodes) {
      const Op& op = graph.op(node);
      columns.name = std::max(columns.name, ShortName(block, op.name).size());
      columns.kind = std::max(columns.kind, Info(op.kind).name.size());
      columns.result = std::max(columns.result, ResultText(graph, op).size());
    }
  }
  return columns;
}

void AddNode(const Graph& graph, const GraphBlock& block, const GraphNode& node,
             const Columns& columns, std::string& out) {
  const Op& op = graph.op(node);
  out += fmt::format("  {:<{}}  {:<{}}  {:<{}}  ", ShortName(block, op.name), columns.name,
                     Info(op.kind).name, columns.kind, ResultText(graph, op), columns.result);
  bool first = true;
  for (const GraphInput& input : node.inputs) {
    if (input.source == GraphSource::kAbsent) continue;
    out += (first ? "" : ", ") + OperandText(graph, block, input);
    first = false;
  }
  if (const std::string attrs = ShortAttrs(op); !attrs.empty()) out += "  {" + attrs + "}";
  out += "\n";
  if (op.outputs.size() == 1) return;
  for (const Value v : op.outputs) {
    const ValueInfo& info = graph.plan->Info(v);
    out += fmt::format("    -> {:<{}}  {}\n", ShortName(block, info.name),
                       columns.name + columns.kind - 1, ShapeText(graph, info.shape));
  }
}

void AddLegend(const Graph& graph, const GraphBlock& block, std::string& out) {
  for (size_t p = 0; p < block.ports.size(); ++p) {
    const GraphPort& port = block.ports[p];
    // A name that stands for itself needs none.
    if (block.layers.size() <= 1) continue;
    out += fmt::format("  {} = {}\n", PortLabel(graph, block, p), PortText(graph, block, port));
  }
}

std::string Heading(const Graph& graph, const GraphHeading& heading) {
  int64_t elements = 0;
  for (const Value v : graph.plan->Weights()) elements += graph.plan->Info(v).shape.Elements({});
  return fmt::format(
      "model  {}\nplan   {}{}: {} ops, {} layers, {} numbers in weights\nphase  {}\n",
      heading.model, graph.plan->arch, heading.fused ? ", fused" : "", graph.plan->ops.size(),
      graph.n_layers, elements, PhaseText(graph));
}

// Where an operand of a trace comes from, as far as its name does not say it.
std::string OriginText(const Graph& graph, const GraphBlock& block, const GraphInput& input) {
  switch (input.source) {
    case GraphSource::kWeight:
      return "weight " + DTypeText(graph, input.value);
    case GraphSource::kBatch:
      return "of the step";
    case GraphSource::kCache:
      return "cache: what earlier steps stored";
    case GraphSource::kOtherPhase:
      return "not read in this phase";
    case GraphSource::kPort:
      return block.place == GraphPlace::kInLayers ? "from before the layer" : "from the layers";
    case GraphSource::kAbsent:
    case GraphSource::kNode:
      break;
  }
  return "";
}

void AddTracedNode(const Graph& graph, const GraphBlock& block, const GraphNode& node,
                   std::string& out) {
  constexpr int kNameWidth = 36;
  const Op& op = graph.op(node);
  out += fmt::format("{:>5}  {}  {}  {}", node.depth, ShortName(block, op.name), Info(op.kind).name,
                     ResultText(graph, op));
  if (const std::string attrs = ShortAttrs(op); !attrs.empty()) out += "  {" + attrs + "}";
  out += "\n";
  for (const GraphInput& input : node.inputs) {
    if (input.source == GraphSource::kAbsent) continue;
    const std::string line = fmt::format(
        "         {:<12} {:<{}} {:<36} {}", input.role, InputLabel(graph, block, input), kNameWidth,
        ShapeText(graph, graph.plan->Info(input.value).shape), OriginText(graph, block, input));
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
}

// What a trace ends at: "tokens, positions, 272 weights and 30 caches".
std::string Ends(const Graph& graph) {
  std::vector<bool> seen(graph.plan->values.size(), false);
  std::string arrays;
  size_t weights = 0;
  size_t caches = 0;
  for (const GraphBlock& block : graph.blocks) {
    const size_t times = std::max<size_t>(1, block.layers.size());
    for (const GraphNode& node : block.nodes) {
      for (const GraphInput& input : node.inputs) {
        if (!input.value.present() || seen[static_cast<size_t>(input.value.id)]) continue;
        seen[static_cast<size_t>(input.value.id)] = true;
        const ValueInfo& info = graph.plan->Info(input.value);
        if (input.source == GraphSource::kBatch) arrays += info.name + ", ";
        // A weight of all layers is one, one of the layer is one in each.
        const bool own = ShortName(block, info.name) != info.name;
        if (input.source == GraphSource::kWeight) weights += own ? times : 1;
        if (input.source == GraphSource::kCache) caches += own ? times : 1;
      }
    }
  }
  return fmt::format("{}{} weights, {} caches", arrays, weights, caches);
}

std::string TraceText(const Graph& graph, const GraphHeading& heading) {
  std::string out = Heading(graph, heading);
  size_t ops = 0;
  for (const GraphBlock& block : graph.blocks) {
    ops += block.nodes.size() * std::max<size_t>(1, block.layers.size());
  }
  out += fmt::format("trace  {} depends on {} ops, which read {}\n", graph.target, ops - 1,
                     Ends(graph));
  for (auto block = graph.blocks.rbegin(); block != graph.blocks.rend(); ++block) {
    out += fmt::format("\n{}\n", BlockTitle(graph, *block));
    AddLegend(graph, *block, out);
    std::vector<GraphNode> nodes(block->nodes.rbegin(), block->nodes.rend());
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const GraphNode& a, const GraphNode& b) { return a.depth < b.depth; });
    for (const GraphNode& node : nodes) AddTracedNode(graph, *block, node, out);
  }
  return out;
}

}  // namespace

std::string GraphText(const Graph& graph, const GraphHeading& heading) {
  if (!graph.target.empty()) return TraceText(graph, heading);
  const Columns columns = ColumnsOf(graph);
  std::string out = Heading(graph, heading);
  for (const GraphBlock& block : graph.blocks) {
    out += fmt::format("\n{}\n", BlockTitle(graph, block));
    AddLegend(graph, block, out);
    for (const GraphNode& node : block.nodes) AddNode(graph, block, node, columns, out);
  }
  return out;
}

}  // namespace lucid
