// The flow of shapes as JSON; docs/trace.md describes it.
#include <array>
#include <nlohmann/json.hpp>

#include "cli/trace_lines.h"
#include "cli/trace_report.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

Json CostJson(const Cost& cost) {
  return {{"flops", cost.flops},
          {"weight_bytes", cost.weight_bytes},
          {"kv_read_bytes", cost.kv_read_bytes},
          {"kv_write_bytes", cost.kv_write_bytes},
          {"activation_bytes", cost.activation_bytes}};
}

Json ShapeJson(const FlowTensor& tensor, size_t phase) {
  Json shape = Json::array();
  for (const FlowDim& dim : tensor.dims) shape.push_back(dim.size[phase]);
  return shape;
}

Json ValuesJson(const std::vector<ValueSummary>& values, const std::string& op) {
  Json list = Json::array();
  for (const ValueSummary& v : values) {
    if (v.op != op) continue;
    Json rows = Json::array();
    for (const ValueRow& row : v.some) {
      rows.push_back({{"row", row.index}, {"first", row.head}, {"last", row.tail}});
    }
    list.push_back({{"name", v.name},
                    {"shape", v.shape},
                    {"min", v.min},
                    {"max", v.max},
                    {"mean", v.mean},
                    {"rms", v.rms},
                    {"not_finite", v.not_finite},
                    {"rows", std::move(rows)}});
  }
  return list;
}

Json AttentionJson(const std::vector<AttentionMap>& maps, const std::string& op) {
  Json list = Json::array();
  for (const AttentionMap& map : maps) {
    if (map.op != op) continue;
    for (const AttentionQuery& query : map.queries) {
      Json heads = Json::array();
      for (int64_t head = 0; head < map.n_heads; ++head) {
        Json row = Json::array();
        for (int64_t key = 0; key < query.n_keys; ++key) row.push_back(query.Weight(head, key));
        heads.push_back(std::move(row));
      }
      list.push_back({{"sequence", query.sequence},
                      {"position", query.position},
                      {"first_key", query.first_key},
                      {"weights", std::move(heads)}});
      if (!query.sinks.empty()) list.back()["sinks"] = query.sinks;
    }
  }
  return list;
}

Json StepJson(const TraceReport& report, const FlowStep& step) {
  Json tensors = Json::array();
  for (const FlowTensor& tensor : step.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"symbolic", tensor.Symbolic()},
                       {"prefill", step.runs[0] ? ShapeJson(tensor, 0) : Json()},
                       {"decode", step.runs[1] ? ShapeJson(tensor, 1) : Json()},
                       {"note", tensor.note}});
  }
  Json weights = Json::array();
  for (const FlowWeight& weight : step.weights) {
    weights.push_back({{"role", weight.role},
                       {"name", weight.name},
                       {"dtype", weight.dtype},
                       {"shape", weight.shape},
                       {"bytes", weight.bytes}});
  }
  Json json = {{"name", step.name},
               {"op", step.op},
               {"kind", step.kind},
               {"formula", step.formula},
               {"attributes", step.attributes},
               {"tensors", std::move(tensors)},
               {"weights", std::move(weights)}};
  for (size_t phase = 0; phase < 2; ++phase) {
    Json& in = json[PhaseWord(phase)];
    in = CostJson(step.cost[phase]);
    in["runs"] = step.runs[phase];
    if (report.values[phase].empty()) continue;
    in["values"] = ValuesJson(report.values[phase], step.op);
    Json attention = AttentionJson(report.attention[phase], step.op);
    if (!attention.empty()) in["attention"] = std::move(attention);
  }
  return json;
}

}  // namespace

Json TraceFlowJson(const TraceReport& report) {
  const ShapeFlow& flow = report.flow;
  Json json = {{"model", report.model},
               {"arch", flow.arch},
               {"n_layers", flow.n_layers},
               {"fused", report.fused},
               {"batch", flow.batch}};
  for (size_t phase = 0; phase < 2; ++phase) {
    json[PhaseWord(phase)] = {{"tokens", flow.tokens[phase]}, {"keys", flow.keys[phase]}};
    json[PhaseWord(phase)].update(CostJson(flow.total[phase]));
  }
  for (const FlowSymbol& symbol : flow.symbols) {
    json["symbols"].push_back({{"symbol", symbol.symbol},
                               {"meaning", symbol.meaning},
                               {"prefill", symbol.value[0]},
                               {"decode", symbol.value[1]}});
  }
  for (const FlowBlock& block : flow.blocks) {
    Json steps = Json::array();
    for (const FlowStep& step : block.steps) steps.push_back(StepJson(report, step));
    json["blocks"].push_back({{"title", block.title},
                              {"layers", block.layers},
                              {"prefill", CostJson(block.cost[0])},
                              {"decode", CostJson(block.cost[1])},
                              {"steps", std::move(steps)}});
  }
  for (const InvariantResult& result : report.invariants) {
    json["invariants"].push_back({{"id", result.id},
                                  {"claim", result.claim},
                                  {"verdict", Name(result.verdict)},
                                  {"found", result.found}});
  }
  return json;
}

}  // namespace lucid::cli
