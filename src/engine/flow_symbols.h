// FlowSymbols: what the numbers of a model's shapes are called (H, n_q, d, ...), for shape_flow.cc.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/shape_flow.h"

namespace lucid {

class FlowSymbols {
 public:
  FlowSymbols(const ModelConfig& config, const FlowOptions& options);

  FlowDim Sequences() { return Use("B"); }
  FlowDim NewTokens() { return Use("S"); }
  // Keys that a query meets, of a layer with this window (0: none).
  FlowDim Keys(int64_t window);
  // The number by the first of these names that it has; else as a plain number.
  FlowDim Named(int64_t number, std::initializer_list<std::string_view> names);

  // Those that were used, in the order of the table.
  std::vector<FlowSymbol> Used() const;

 private:
  struct Row {
    FlowSymbol symbol;
    bool used = false;
  };
  void Add(std::string symbol, int64_t value, std::string meaning);
  Row* Find(std::string_view symbol);
  FlowDim Use(std::string_view symbol);

  std::vector<Row> rows_;
  ByPhase<int64_t> keys_{};
};

}  // namespace lucid
