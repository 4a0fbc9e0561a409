// A graph as one JSON object; docs/plan.md describes it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/graph_labels.h"
#include "plan/graph_render.h"
#include "plan/op_table.h"
#include "plan/print.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

const char* KindName(ValueKind kind) {
  switch (kind) {
    case ValueKind::kActivation:
      return "activation";
    case ValueKind::kWeight:
      return "weight";
    case ValueKind::kKv:
      return "cache";
    case ValueKind::kBatch:
      return "array";
  }
  return "?";
}

Json ValueJson(const Graph& graph, Value value) {
  const ValueInfo& info = graph.plan->Info(value);
  Json symbolic = Json::array();
  Json numbers = Json::array();
  for (int i = 0; i < info.shape.rank; ++i) {
    const Dim& dim = info.shape[i];
    if (dim.symbol == Symbol::kNone) {
      symbolic.push_back(dim.size);
    } else {
      symbolic.push_back(dim.ToString());
    }
    numbers.push_back(dim.Bind(graph.sizes));
  }
  const std::string dtype = DTypeText(graph, value);
  const std::optional<int64_t> bytes = ValueBytes(graph, value);
  return {{"name", info.name},
          {"kind", KindName(info.kind)},
          {"dtype", dtype.empty() ? Json() : Json(dtype)},
          {"shape_symbolic", std::move(symbolic)},
          {"shape", std::move(numbers)},
          {"bytes", bytes ? Json(*bytes) : Json()}};
}

Json FromJson(const Graph& graph, const GraphBlock& block, const GraphInput& input) {
  Json from = Json::array();
  if (input.source == GraphSource::kNode) {
    const GraphNode& node = block.nodes[static_cast<size_t>(input.index)];
    from.push_back({{"op", graph.op(node).name}});
  }
  if (input.source != GraphSource::kPort) return from;
  for (const GraphLink& link : block.ports[static_cast<size_t>(input.index)].links) {
    const GraphBlock& writer = graph.blocks[static_cast<size_t>(link.block)];
    const GraphNode& node = writer.nodes[static_cast<size_t>(link.node)];
    from.push_back({{"op", graph.op(node).name},
                    {"block", link.block},
                    {"layers_back", link.layers_back},
                    {"layers", link.layers}});
  }
  return from;
}

Json NodeJson(const Graph& graph, size_t block_index, const GraphNode& node) {
  const GraphBlock& block = graph.blocks[block_index];
  const Op& op = graph.op(node);
  Json inputs = Json::array();
  for (const GraphInput& input : node.inputs) {
    if (input.source == GraphSource::kAbsent) continue;
    Json value = {{"role", input.role}};
    value.update(ValueJson(graph, input.value));
    value["read"] = input.source != GraphSource::kOtherPhase;
    value["from"] = FromJson(graph, block, input);
    inputs.push_back(std::move(value));
  }
  Json outputs = Json::array();
  for (const Value v : op.outputs) outputs.push_back(ValueJson(graph, v));
  Json json = {{"name", op.name},
               {"op", Info(op.kind).name},
               {"block", block_index},
               {"attributes", PrintAttrs(op)},
               {"inputs", std::move(inputs)},
               {"outputs", std::move(outputs)}};
  if (node.depth >= 0) json["depth"] = node.depth;
  return json;
}

}  // namespace

std::string GraphJson(const Graph& graph, const GraphHeading& heading) {
  const Sizes& sizes = graph.sizes;
  Json json = {
      {"model", heading.model},
      {"arch", graph.plan->arch},
      {"phase", PhaseName(graph.phase)},
      {"fused", heading.fused},
      {"sizes",
       {{"T", sizes.tokens}, {"R", sizes.outputs}, {"S", sizes.sequences}, {"C", sizes.context}}},
      {"n_layers", graph.n_layers},
      {"n_ops", graph.plan->ops.size()}};
  if (!graph.target.empty()) json["trace_back"] = graph.target;
  Json blocks = Json::array();
  Json ops = Json::array();
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const GraphBlock& block = graph.blocks[b];
    blocks.push_back({{"title", BlockTitle(graph, block)}, {"layers", block.layers}});
    for (const GraphNode& node : block.nodes) ops.push_back(NodeJson(graph, b, node));
  }
  json["blocks"] = std::move(blocks);
  json["ops"] = std::move(ops);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lucid
