// Graph: a plan as people draw it: the ops that a phase runs, in blocks (what comes before the
// layers, the layers, what comes after them), equal layers as one block, every operand with where
// it comes from, and the trace back from one op to all that it depends on.
//
// Entry point: MakeGraph. Neighbours: plan.h (what is drawn), graph_render.h (who draws it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "tensor/dtype.h"

namespace lucid {

struct GraphOptions {
  Phase phase = Phase::kPrompt;
  Sizes sizes = {};                       // numbers beside the symbolic shapes
  std::vector<DType> weight_dtypes = {};  // by value id; they tell layers apart, too
  // The name of an op or of its result: only it and what it depends on is drawn. Empty: all ops.
  std::string trace_back = {};
  // Layers, first and last, that are drawn each by itself, though others be equal to them.
  std::optional<std::pair<int32_t, int32_t>> layers = {};
  bool all_layers = false;  // every layer by itself
};

// Where an operand comes from.
enum class GraphSource : int8_t {
  kAbsent,      // an optional operand that this op does not have
  kOtherPhase,  // read in the other phase only
  kNode,        // an op of the same block
  kPort,        // an op of another block
  kWeight,
  kBatch,  // an array of the step
  kCache,  // what earlier steps stored
};

struct GraphInput {
  std::string role;  // "x", "w": as the op table calls it
  Value value;
  GraphSource source = GraphSource::kAbsent;
  int32_t index = -1;  // kNode: into the block's nodes; kPort: into its ports
};

struct GraphNode {
  int32_t op = -1;                 // into Plan::ops; of the first of the block's layers
  std::vector<GraphInput> inputs;  // as the op's
  // Of a trace: steps back from its target, the longest way; of the last of the block's layers.
  int32_t depth = -1;
};

// The op that writes what a port brings.
struct GraphLink {
  int32_t block = -1;
  int32_t node = -1;
  int32_t output = 0;
  int32_t layers_back = 0;      // how many layers before its reader that op is; 0: in no layer
  std::vector<int32_t> layers;  // the reading layers; empty where the reader is in none
};

// A value that a block reads from others. Blocks of several layers may have several links.
struct GraphPort {
  Value value;  // of the first of the block's layers
  std::vector<GraphLink> links;
};

enum class GraphPlace : int8_t { kBeforeLayers, kInLayers, kAfterLayers };

struct GraphBlock {
  GraphPlace place = GraphPlace::kBeforeLayers;
  std::vector<int32_t> layers;  // that look like this, ascending; empty outside of layers
  std::vector<GraphNode> nodes;
  std::vector<GraphPort> ports;
};

// The plan must outlive it.
struct Graph {
  const Plan* plan = nullptr;
  Phase phase = Phase::kPrompt;
  Sizes sizes;
  std::vector<DType> weight_dtypes;
  int32_t n_layers = 0;
  std::string target;  // of a trace: the name of its op; else empty
  std::vector<GraphBlock> blocks;

  const Op& op(const GraphNode& node) const { return plan->ops[static_cast<size_t>(node.op)]; }
};

// kNotFound where `trace_back` names nothing that this phase computes (with names like it), or
// `layers` none of the model's.
Result<Graph> MakeGraph(const Plan& plan, GraphOptions options);

// Whether the op reads this input in the phase.
bool ReadsInput(const Op& op, size_t input, Phase phase);

}  // namespace lucid
