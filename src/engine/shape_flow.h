// ShapeFlow: how shapes go through a model, op by op, in a prefill and in the decode step behind
// it, side by side: symbolic and with numbers, with formulas, weights, FLOPs and bytes. Made of the
// plan alone, so a config.json will do; equal layers are one block.
//
// Entry point: MakeShapeFlow. Neighbours: plan/graph.h (which layers are equal), account/ledger.h
// (what ops cost), trace.h (what ran).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kv/kv_layout.h"
#include "models/model_config.h"
#include "plan/graph.h"
#include "plan/op_table.h"

namespace lucid {

// Of both phases, in the order of Phase: prefill, then decode.
template <typename T>
using ByPhase = std::array<T, 2>;

struct FlowOptions {
  int64_t batch = 2;    // sequences
  int64_t prompt = 10;  // tokens of each
  int64_t cached = 0;   // positions in the cache before the decode step; 0: the prompt's
  KvOptions kv = {};
  // Layers that are shown each by itself, as GraphOptions has them.
  bool all_layers = false;
  std::optional<std::pair<int32_t, int32_t>> layers = {};
};

struct FlowDim {
  std::string symbol;  // "B", "n_q*d"; a plain number where nothing is called so
  ByPhase<int64_t> size{};
};

// A tensor of an op: what it gives, or what a fused kernel goes through on the way.
struct FlowTensor {
  std::string name;  // "scores"; empty where it is the op's only result
  std::vector<FlowDim> dims;
  std::string note;  // how it comes about, where that is not the op's formula

  std::string Symbolic() const;              // "[B, n_q, S, d]"
  std::string Concrete(size_t phase) const;  // "[2, 32, 10, 128]"
};

struct FlowWeight {
  std::string role;  // "w", as the op table calls it
  std::string name;  // of the slot
  std::string dtype;
  std::string shape;
  int64_t bytes = 0;
};

struct FlowStep {
  std::string name = {};  // as the op's, without the number of the layer
  std::string op = {};  // the op's own name, of the first of the block's layers; empty: none of the
                        // plan's (tokens come in, a token is drawn)
  std::string kind = {};
  std::string formula = {};
  std::string attributes = {};
  std::vector<FlowTensor> tensors = {};
  std::vector<FlowWeight> weights = {};
  ByPhase<bool> runs{};  // of the two forms of latent attention each runs in one phase
  ByPhase<Cost> cost{};
};

struct FlowBlock {
  GraphPlace place = GraphPlace::kBeforeLayers;
  std::vector<int32_t> layers = {};  // that look like this
  std::string title = {};            // "layers 0 to 31 (32 times)"
  std::vector<FlowStep> steps = {};
  ByPhase<Cost> cost{};  // of all its layers
};

struct FlowSymbol {
  std::string symbol;
  std::string meaning;
  ByPhase<int64_t> value{};
};

struct ShapeFlow {
  std::string arch;
  int64_t n_layers = 0;
  int64_t batch = 0;
  ByPhase<int64_t> tokens{};        // that each sequence brings
  ByPhase<int64_t> keys{};          // that its cache holds after the step
  std::vector<FlowSymbol> symbols;  // that occur
  std::vector<FlowBlock> blocks;
  ByPhase<Cost> total{};
};

// `plan` as declared or fused, `dtypes` of its weights by value id. kInvalidArgument for sizes
// below 1 or a cache shorter than nothing; kNotFound for layers that the model does not have.
Result<ShapeFlow> MakeShapeFlow(const Plan& plan, const ModelConfig& config,
                                std::span<const DType> dtypes, const FlowOptions& options);

}  // namespace lucid
