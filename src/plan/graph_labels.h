// The words of a graph: names as a block shows them, shapes, types, where ports come from. Used by
// all that draw one (graph_render.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plan/graph.h"

namespace lucid {

// "layer 3", "layers 0 to 4, 6 and 9".
std::string LayersText(std::span<const int32_t> layers);

// "before the layers", "layers 0 to 29 (30 times)", "after the layers"; "all ops" of a plan that
// has no layers.
std::string BlockTitle(const Graph& graph, const GraphBlock& block);

// A name without the number of the block's first layer: "attn_q" for "blk.3.attn_q"; "next.attn_q"
// of the layer behind it, where fused ops reach.
std::string ShortName(const GraphBlock& block, const std::string& name);

// What stands for an input that is present: the short name of a value, or the label of its port.
std::string InputLabel(const Graph& graph, const GraphBlock& block, const GraphInput& input);

// The value's own name where all layers of the block read that one; else "in", "in2", ...
std::string PortLabel(const Graph& graph, const GraphBlock& block, size_t port);
// "embed", "out of the layer before": what a link brings.
std::string LinkText(const Graph& graph, const GraphBlock& block, const GraphPort& port,
                     const GraphLink& link);
// All links of a port, with the layers that read them where they differ: "layer 0: embed; layers 1
// to 29: out of the layer before".
std::string PortText(const Graph& graph, const GraphBlock& block, const GraphPort& port);

// "[T, 576] = [10, 576]"; of a weight only its numbers.
std::string ShapeText(const Graph& graph, const Shape& shape);

// "F32", "Q4_K", "I32"; empty for caches and for weights of unknown types.
std::string DTypeText(const Graph& graph, Value value);
// "[576, 576] Q4_K", the shape alone where the type is not known.
std::string WeightText(const Graph& graph, Value weight);
// Bytes of the value with the graph's sizes; nothing where DTypeText is empty.
std::optional<int64_t> ValueBytes(const Graph& graph, Value value);

// The op's attributes, lists of more than a few numbers cut.
std::string ShortAttrs(const Op& op);

// "1,234,567".
std::string GroupedDigits(int64_t number);

// "prefill", "decode", and the same with the graph's sizes in words.
std::string PhaseName(Phase phase);
std::string PhaseText(const Graph& graph);

}  // namespace lucid
