#include "plan/graph_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/print.h"

namespace lucid {
namespace {

const GraphBlock& BlockOf(const Graph& graph, const GraphLink& link) {
  return graph.blocks[static_cast<size_t>(link.block)];
}

std::string Counted(int64_t n, const char* what) {
  return fmt::format("{} {}{}", GroupedDigits(n), what, n == 1 ? "" : "s");
}

}  // namespace

std::string LayersText(std::span<const int32_t> layers) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (end - i > 2) {
      runs.push_back(fmt::format("{} to {}", layers[i], layers[end - 1]));
    } else {
      for (size_t k = i; k < end; ++k) runs.push_back(fmt::to_string(layers[k]));
    }
    i = end;
  }
  if (runs.empty()) return "";
  const std::string last = runs.back();
  runs.pop_back();
  const std::string list =
      runs.empty() ? last : fmt::format("{} and {}", fmt::join(runs, ", "), last);
  return (layers.size() == 1 ? "layer " : "layers ") + list;
}

std::string BlockTitle(const Graph& graph, const GraphBlock& block) {
  if (block.layers.size() == 1) return LayersText(block.layers);
  if (!block.layers.empty()) {
    return fmt::format("{} ({} times)", LayersText(block.layers), block.layers.size());
  }
  if (graph.n_layers == 0) return "all ops";
  return block.place == GraphPlace::kBeforeLayers ? "before the layers" : "after the layers";
}

std::string ShortName(const GraphBlock& block, const std::string& name) {
  if (block.layers.empty()) return name;
  const int32_t layer = block.layers.front();
  if (const std::string own = fmt::format("blk.{}.", layer); name.starts_with(own)) {
    return name.substr(own.size());
  }
  if (const std::string next = fmt::format("blk.{}.", layer + 1); name.starts_with(next)) {
    return "next." + name.substr(next.size());
  }
  return name;
}

std::string PortLabel(const Graph& graph, const GraphBlock& block, size_t port) {
  if (block.layers.size() <= 1) return graph.plan->Info(block.ports[port].value).name;
  return port == 0 ? "in" : fmt::format("in{}", port + 1);
}

std::string LinkText(const Graph& graph, const GraphBlock& block, const GraphPort& port,
                     const GraphLink& link) {
  const GraphBlock& from = BlockOf(graph, link);
  const Op& op = graph.op(from.nodes[static_cast<size_t>(link.node)]);
  std::string name = graph.plan->Info(op.outputs[static_cast<size_t>(link.output)]).name;
  if (link.layers_back > 0) {
    name = ShortName(from, name);
    if (name.starts_with("next.") && link.layers_back == 1) name = name.substr(5);
    name += link.layers_back == 1 ? " of the layer before"
                                  : fmt::format(" of {} layers before", link.layers_back);
  } else if (block.layers.empty()) {
    name = graph.plan->Info(port.value).name;  // of one layer of those that look alike
  }
  return name;
}

std::string PortText(const Graph& graph, const GraphBlock& block, const GraphPort& port) {
  std::vector<std::pair<std::string, std::vector<int32_t>>> readers;  // layers by what they read
  for (const GraphLink& link : port.links) {
    const std::string name = LinkText(graph, block, port, link);
    auto known = std::ranges::find(readers, name, [](const auto& r) { return r.first; });
    if (known == readers.end()) known = readers.insert(readers.end(), {name, {}});
    known->second.insert(known->second.end(), link.layers.begin(), link.layers.end());
  }
  if (readers.size() == 1) return readers.front().first;
  std::string text;
  for (auto& [name, layers] : readers) {
    std::ranges::sort(layers);
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", LayersText(layers), name);
  }
  return text;
}

std::string InputLabel(const Graph& graph, const GraphBlock& block, const GraphInput& input) {
  if (input.source == GraphSource::kPort) {
    return PortLabel(graph, block, static_cast<size_t>(input.index));
  }
  return ShortName(block, graph.plan->Info(input.value).name);
}

std::string ShapeText(const Graph& graph, const Shape& shape) {
  std::string symbolic = shape.ToString();
  const std::string numbers = shape.ToString(graph.sizes);
  return symbolic == numbers ? symbolic : symbolic + " = " + numbers;
}

std::string DTypeText(const Graph& graph, Value value) {
  switch (graph.plan->Info(value).kind) {
    case ValueKind::kActivation:
      return "F32";
    case ValueKind::kBatch:
      return "I32";
    case ValueKind::kWeight:
      if (graph.weight_dtypes.empty()) return "";
      return std::string(Name(graph.weight_dtypes[static_cast<size_t>(value.id)]));
    case ValueKind::kKv:
      break;
  }
  return "";
}

std::string WeightText(const Graph& graph, Value weight) {
  const std::string dtype = DTypeText(graph, weight);
  return graph.plan->Info(weight).shape.ToString() + (dtype.empty() ? "" : " " + dtype);
}

std::optional<int64_t> ValueBytes(const Graph& graph, Value value) {
  const ValueInfo& info = graph.plan->Info(value);
  if (DTypeText(graph, value).empty()) return std::nullopt;
  const int64_t elements = info.shape.Elements(graph.sizes);
  if (info.kind != ValueKind::kWeight) return 4 * elements;
  return RowBytes(graph.weight_dtypes[static_cast<size_t>(value.id)], elements);
}

std::string ShortAttrs(const Op& op) {
  constexpr size_t kMostInList = 40;  // bytes between brackets
  const std::string attrs = PrintAttrs(op);
  std::string out;
  for (size_t i = 0; i < attrs.size();) {
    const size_t open = attrs.find('[', i);
    const size_t close = open == std::string::npos ? open : attrs.find(']', open);
    if (close == std::string::npos) return out + attrs.substr(i);
    out += attrs.substr(i, open - i);
    std::string list = attrs.substr(open, close - open);
    if (list.size() > kMostInList) list = list.substr(0, list.rfind(',', kMostInList)) + ",...";
    out += list + "]";
    i = close + 1;
  }
  return out;
}

std::string GroupedDigits(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string PhaseName(Phase phase) {
  return phase == Phase::kPrompt ? "prefill" : "decode";
}

std::string PhaseText(const Graph& graph) {
  const Sizes& s = graph.sizes;
  const int64_t each = s.sequences > 0 ? s.tokens / s.sequences : 0;
  return fmt::format("{}: {} of {} (S = {}, T = {}), {} of logits (R = {}), room for {} (C = {})",
                     PhaseName(graph.phase), Counted(s.sequences, "sequence"),
                     Counted(each, "token"), s.sequences, s.tokens, Counted(s.outputs, "row"),
                     s.outputs, Counted(s.context, "key"), s.context);
}

}  // namespace lucid
